//! LaTeX macros and environments with arguments: the arguments they take and the text they become, after
//! the defaults of pylatexenc 2.11 (`latexwalker/_defaultspecs.py`, `latex2text/_defaultspecs.py`). Add a
//! line to add a macro.

/// A macro with arguments.
pub(super) struct Macro {
    name: &'static str,
    /// Its arguments: `{` an expression, `[` an optional one in brackets, `*` an optional star.
    pub(super) takes: &'static str,
    /// Its text.
    pub(super) text: Text,
}

/// Text of a macro with arguments.
#[derive(Clone, Copy)]
pub(super) enum Text {
    /// Nothing.
    Nothing,
    /// Its arguments, concatenated.
    Arguments,
    /// Its arguments, read as prose even inside a formula.
    Prose,
    /// A template: `%s` is the next argument, `%(2)s` the second.
    Template(&'static str),
    /// The letters of its argument in a mathematical alphabet.
    Alphabet(&'static Alphabet),
    /// The characters of its argument, each with an accent.
    Accent(&'static Accent),
}

/// Returns the arguments and text of `\name`, if it takes arguments.
pub(super) fn with_arguments(name: &str) -> Option<&'static Macro> {
    MACROS.iter().find(|known| known.name == name)
}

const fn the(name: &'static str, takes: &'static str, text: Text) -> Macro {
    Macro { name, takes, text }
}

use Text::{Arguments, Nothing, Prose, Template};

#[rustfmt::skip]
const MACROS: &[Macro] = &[
    the("frac", "{{", Template("%s/%s")),
    the("nicefrac", "{{", Template("%s/%s")),
    // Its text is known, but the parser does not know it, so its arguments never exist.
    the("textfrac", "", Template("%s/%s")),
    the("sqrt", "[{", Template("√(%(2)s)")),
    the("ensuremath", "{", Template("%s")),

    the("text", "{", Prose),
    the("textrm", "{", Prose),
    the("textit", "{", Prose),
    the("textbf", "{", Prose),
    the("textsc", "{", Prose),
    the("textsl", "{", Prose),
    the("emph", "{", Arguments),
    the("mathrm", "{", Arguments),
    the("mathbf", "{", Text::Alphabet(&BOLD)),
    the("mathit", "{", Text::Alphabet(&ITALIC)),
    the("mathsf", "{", Text::Alphabet(&SANS)),
    the("mathbb", "{", Text::Alphabet(&DOUBLE_STRUCK)),
    the("mathtt", "{", Text::Alphabet(&MONOSPACE)),
    the("mathcal", "{", Text::Alphabet(&SCRIPT)),
    the("mathscr", "{", Text::Alphabet(&SCRIPT)),
    the("mathfrak", "{", Text::Alphabet(&FRAKTUR)),

    the("overline", "{", Template("%s")),
    the("underline", "{", Template("%s")),
    the("widehat", "{", Template("%s")),
    the("widetilde", "{", Template("%s")),
    the("wideparen", "{", Template("%s")),
    the("overleftarrow", "{", Template("%s")),
    the("overrightarrow", "{", Template("%s")),
    the("overleftrightarrow", "{", Template("%s")),
    the("underleftarrow", "{", Template("%s")),
    the("underrightarrow", "{", Template("%s")),
    the("underleftrightarrow", "{", Template("%s")),
    the("overbrace", "{", Template("%s")),
    the("underbrace", "{", Template("%s")),
    the("overgroup", "{", Template("%s")),
    the("undergroup", "{", Template("%s")),
    the("overbracket", "{", Template("%s")),
    the("underbracket", "{", Template("%s")),
    the("overlinesegment", "{", Template("%s")),
    the("underlinesegment", "{", Template("%s")),
    the("overleftharpoon", "{", Template("%s")),
    the("overrightharpoon", "{", Template("%s")),
    the("bra", "{", Template("⟨%s|")),
    the("ket", "{", Template("|%s⟩")),
    the("braket", "{{", Template("⟨%s|%s⟩")),
    the("ketbra", "{{", Template("|%s⟩⟨%s|")),

    the("'", "{", Text::Accent(&ACUTE)),
    the("acute", "{", Text::Accent(&ACUTE)),
    the("`", "{", Text::Accent(&GRAVE)),
    the("grave", "{", Text::Accent(&GRAVE)),
    the("\"", "{", Text::Accent(&DIAERESIS)),
    the("ddot", "{", Text::Accent(&DIAERESIS)),
    the("c", "{", Text::Accent(&CEDILLA)),
    the("^", "{", Text::Accent(&CIRCUMFLEX)),
    the("hat", "{", Text::Accent(&CIRCUMFLEX)),
    the("~", "{", Text::Accent(&TILDE)),
    the("tilde", "{", Text::Accent(&TILDE)),
    the("H", "{", Text::Accent(&DOUBLE_ACUTE)),
    the("k", "{", Text::Accent(&OGONEK)),
    the("=", "{", Text::Accent(&MACRON)),
    the("b", "{", Text::Accent(&MACRON_BELOW)),
    the(".", "{", Text::Accent(&DOT)),
    the("dot", "{", Text::Accent(&DOT)),
    the("d", "{", Text::Accent(&DOT_BELOW)),
    the("r", "{", Text::Accent(&RING)),
    the("u", "{", Text::Accent(&BREVE)),
    the("breve", "{", Text::Accent(&BREVE)),
    the("v", "{", Text::Accent(&CARON)),
    the("check", "{", Text::Accent(&CARON)),
    the("vec", "{", Text::Accent(&ARROW)),
    the("bar", "{", Text::Accent(&OVERLINE)),
    the("not", "{", Text::Accent(&SLASH)),

    the("\\", "*[", Template("\n")),
    the("hspace", "*{", Nothing),
    the("vspace", "*{", Template("\n")),
    the("hphantom", "[{", Nothing),
    the("vphantom", "[{", Nothing),
    the("mbox", "{", Nothing),
    the("textmd", "{", Nothing),
    the("textsf", "{", Nothing),
    the("texttt", "{", Nothing),
    the("textup", "{", Nothing),
    the("xleftarrow", "[{", Nothing),
    the("xrightarrow", "[{", Nothing),
    the("label", "{", Nothing),
    the("ref", "{", Template("<ref>")),
    the("eqref", "{", Template("(<ref>)")),
    the("url", "{", Template("<%s>")),
    the("footnote", "[{", Template("[%(2)s]")),
    the("color", "[{", Nothing),
    the("textcolor", "[{{", Template("%(3)s")),
    the("colorbox", "[{{", Template("%(3)s")),
    the("fcolorbox", "[{[{{", Template("%(5)s")),
];

/// Text of an environment's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Ordinary text; also for unknown environments.
    Plain,
    /// Rows and columns between brackets.
    Matrix,
    /// A formula as a block.
    Formula,
}

/// Returns the arguments of `\begin{name}` and the kind of its body.
pub(super) fn environment(name: &str) -> (&'static str, Body) {
    match name {
        "array" => ("[{", Body::Matrix),
        "pmatrix" | "bmatrix" | "smallmatrix" | "psmallmatrix" | "bsmallmatrix" => ("", Body::Matrix),
        "equation" | "equation*" | "eqnarray" | "eqnarray*" | "align" | "align*" | "gather" | "gather*"
        | "multline" | "multline*" | "dmath" | "dmath*" => ("", Body::Formula),
        "alignat" | "alignat*" | "tabular" => ("{", Body::Plain),
        "tabular*" => ("{{", Body::Plain),
        "enumerate" | "itemize" | "description" => ("[", Body::Plain),
        _ => ("", Body::Plain),
    }
}

/// A mathematical alphabet: the first capital and the first small letter in Unicode, and letters in other
/// places.
pub(super) struct Alphabet {
    capitals: u32,
    small: u32,
    elsewhere: &'static [(char, char)],
}

impl Alphabet {
    /// Returns `c` in this alphabet. A character that is not a letter is returned unchanged.
    pub(super) fn letter(&self, c: char) -> char {
        if let Some((_, there)) = self.elsewhere.iter().find(|(letter, _)| *letter == c) {
            return *there;
        }
        let there = match c {
            'A'..='Z' => self.capitals + (c as u32 - 'A' as u32),
            'a'..='z' => self.small + (c as u32 - 'a' as u32),
            _ => return c,
        };
        char::from_u32(there).unwrap_or(c)
    }
}

const fn alphabet(capitals: u32, elsewhere: &'static [(char, char)]) -> Alphabet {
    Alphabet { capitals, small: capitals + 26, elsewhere }
}

static BOLD: Alphabet = alphabet(0x1D400, &[]);
static ITALIC: Alphabet = alphabet(0x1D434, &[('h', 'ℎ')]);
#[rustfmt::skip]
static SCRIPT: Alphabet = alphabet(0x1D49C, &[
    ('B', 'ℬ'), ('E', 'ℰ'), ('F', 'ℱ'), ('H', 'ℋ'), ('I', 'ℐ'), ('L', 'ℒ'), ('M', 'ℳ'), ('R', 'ℛ'),
    ('e', 'ℯ'), ('g', 'ℊ'), ('o', 'ℴ'),
]);
static FRAKTUR: Alphabet = alphabet(0x1D504, &[('C', 'ℭ'), ('H', 'ℌ'), ('I', 'ℑ'), ('R', 'ℜ'), ('Z', 'ℨ')]);
#[rustfmt::skip]
static DOUBLE_STRUCK: Alphabet = alphabet(0x1D538, &[
    ('C', 'ℂ'), ('H', 'ℍ'), ('N', 'ℕ'), ('P', 'ℙ'), ('Q', 'ℚ'), ('R', 'ℝ'), ('Z', 'ℤ'),
]);
static SANS: Alphabet = alphabet(0x1D5A0, &[]);
static MONOSPACE: Alphabet = alphabet(0x1D670, &[]);

/// An accent: its combining character, and the pairs that have a composed character in Unicode. Upstream
/// uses normal form C; these are the pairs of Latin and Greek letters and of relations.
pub(super) struct Accent {
    combining: char,
    composed: &'static str,
}

impl Accent {
    /// Adds `c` with this accent to `out`.
    pub(super) fn put(&self, c: char, out: &mut String) {
        let c = match c {
            'ı' => 'i',
            'ȷ' => 'j',
            c => c,
        };
        let mut pairs = self.composed.chars();
        while let (Some(plain), Some(composed)) = (pairs.next(), pairs.next()) {
            if plain == c {
                out.push(composed);
                return;
            }
        }
        // The normal form also sorts several accents of one character, from below to above.
        if layer(self.combining) < layer(c) {
            out.extend([self.combining, c]);
        } else {
            out.extend([c, self.combining]);
        }
    }
}

/// Returns the Unicode combining class of an accent in this file, and 0 for other characters.
fn layer(c: char) -> u8 {
    match c {
        '\u{338}' => 1,
        '\u{327}' | '\u{328}' => 202,
        '\u{323}' | '\u{331}' => 220,
        '\u{300}'..='\u{30f}' | '\u{20d7}' => 230,
        _ => 0,
    }
}

const fn accent(combining: char, composed: &'static str) -> Accent {
    Accent { combining, composed }
}

static ACUTE: Accent = accent(
    '\u{301}',
    "AÁCĆEÉGǴIÍKḰLĹMḾNŃOÓPṔRŔSŚUÚWẂYÝZŹaácćeégǵiíkḱlĺmḿnńoópṕrŕsśuúwẃyýzźαάεέηήιίοόυύωώΑΆΕΈΗΉΙΊΟΌΥΎΩΏæǽÆǼ",
);
static GRAVE: Accent = accent('\u{300}', "AÀEÈIÌNǸOÒUÙWẀYỲaàeèiìnǹoòuùwẁyỳαὰεὲηὴιὶοὸυὺωὼΑᾺΕῈΗῊΙῚΟῸΥῪΩῺ");
static DIAERESIS: Accent = accent('\u{308}', "AÄEËHḦIÏOÖUÜWẄXẌYŸaäeëhḧiïoötẗuüwẅxẍyÿιϊυϋ");
static CEDILLA: Accent = accent('\u{327}', "CÇDḐEȨGĢHḨKĶLĻNŅRŖSŞTŢcçdḑeȩgģhḩkķlļnņrŗsştţ");
static CIRCUMFLEX: Accent = accent('\u{302}', "AÂCĈEÊGĜHĤIÎJĴOÔSŜUÛWŴYŶZẐaâcĉeêgĝhĥiîjĵoôsŝuûwŵyŷzẑ");
static TILDE: Accent = accent('\u{303}', "AÃEẼIĨNÑOÕUŨVṼYỸaãeẽiĩnñoõuũvṽyỹ");
static DOUBLE_ACUTE: Accent = accent('\u{30b}', "OŐUŰoőuű");
static OGONEK: Accent = accent('\u{328}', "AĄEĘIĮOǪUŲaąeęiįoǫuų");
static MACRON: Accent = accent('\u{304}', "AĀEĒGḠIĪOŌUŪYȲaāeēgḡiīoōuūyȳαᾱιῑυῡ");
static MACRON_BELOW: Accent = accent('\u{331}', "BḆDḎKḴLḺNṈRṞTṮZẔbḇdḏhẖkḵlḻnṉrṟtṯzẕ");
static DOT: Accent =
    accent('\u{307}', "AȦBḂCĊDḊEĖFḞGĠHḢIİMṀNṄOȮPṖRṘSṠTṪWẆXẊYẎZŻaȧbḃcċdḋeėfḟgġhḣmṁnṅoȯpṗrṙsṡtṫwẇxẋyẏzż");
static DOT_BELOW: Accent =
    accent('\u{323}', "AẠBḄDḌEẸHḤIỊKḲLḶMṂNṆOỌRṚSṢTṬUỤVṾWẈYỴZẒaạbḅdḍeẹhḥiịkḳlḷmṃnṇoọrṛsṣtṭuụvṿwẉyỵzẓ");
static RING: Accent = accent('\u{30a}', "AÅUŮaåuůwẘyẙ");
static BREVE: Accent = accent('\u{306}', "AĂEĔGĞIĬOŎUŬaăeĕgğiĭoŏuŭαᾰιῐυῠ");
static CARON: Accent =
    accent('\u{30c}', "AǍCČDĎEĚGǦHȞIǏKǨLĽNŇOǑRŘSŠTŤUǓZŽaǎcčdďeěgǧhȟiǐjǰkǩlľnňoǒrřsštťuǔzž");
static ARROW: Accent = accent('\u{20d7}', "");
static OVERLINE: Accent = accent('\u{305}', "");
static SLASH: Accent = accent(
    '\u{338}',
    "<≮=≠>≯∃∄∈∉∋∌∣∤∥∦∼≁≃≄≅≇≈≉≍≭≡≢≤≰≥≱≲≴≳≵≶≸≷≹≺⊀≻⊁⊂⊄⊃⊅⊆⊈⊇⊉⊢⊬⊨⊭⊩⊮⊫⊯≼⋠≽⋡⊑⋢⊒⋣⊲⋪⊳⋫⊴⋬⊵⋭←↚→↛↔↮⇐⇍⇔⇎⇒⇏",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_macro_is_listed_twice_and_templates_ask_for_what_is_taken() {
        for (at, known) in MACROS.iter().enumerate() {
            assert!(MACROS[..at].iter().all(|other| other.name != known.name), "{}", known.name);
            if let Template(template) = known.text
                && known.name != "textfrac"
            {
                let asked = template.matches("%s").count();
                assert!(asked == 0 || asked == known.takes.len(), "{}", known.name);
            }
        }
    }

    #[test]
    fn alphabets_and_accents_find_their_letters() {
        assert_eq!("RxZ1".chars().map(|c| DOUBLE_STRUCK.letter(c)).collect::<String>(), "ℝ𝕩ℤ1");
        assert_eq!(BOLD.letter('z'), '𝐳');
        let mut out = String::new();
        "eı2".chars().for_each(|c| ACUTE.put(c, &mut out));
        SLASH.put('=', &mut out);
        assert_eq!(out, "éí2\u{301}≠");
    }
}
