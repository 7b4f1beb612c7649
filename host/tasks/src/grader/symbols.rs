//! The text of LaTeX macros without arguments, after the defaults of pylatexenc 2.11
//! (`latex2text/_defaultspecs.py`), as far as answers in maths use them. Cyrillic, phonetic, astronomical
//! and musical signs are left out. An unknown macro has no text.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Returns the text of `\name`, if it is a symbol.
pub(super) fn symbol(name: &str) -> Option<&'static str> {
    static ALL: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
        let words = |list: &'static str| {
            let words: Vec<&str> = list.split_whitespace().collect();
            words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>()
        };
        let mut all: HashMap<_, _> = SPACES.iter().copied().collect();
        all.extend(NAMES.split_whitespace().map(|name| (name, name)));
        all.extend([LETTERS, GREEK, DELIMITERS, ARROWS, SIGNS].into_iter().flat_map(words));
        all
    });
    ALL.get(name).copied()
}

/// Spaces, texts with a space, and invisible characters. The line break is listed for its use as another
/// macro's argument, without its own arguments.
const SPACES: &[(&str, &str)] = &[
    (" ", " "),
    (",", " "),
    (":", " "),
    (";", " "),
    ("-", "\u{ad}"),
    ("\\", "\n"),
    ("enskip", "\u{2002}"),
    ("quad", "  "),
    ("qquad", "    "),
    ("liminf", "lim inf"),
    ("limsup", "lim sup"),
];

/// Functions, whose text is their name.
const NAMES: &str = "
    cos sin tan arccos arcsin arctan cosh sinh tanh arccosh arcsinh arctanh ln log exp max min sup inf
    lim
";

/// Letters and signs of prose.
const LETTERS: &str = "
    oe œ OE Œ ae æ AE Æ aa å AA Å o ø O Ø ss ß L Ł l ł i ı j ȷ & & $ $ % % # # _ _ textquoteleft ‘
    textquoteright ’ textquotedblright ” textquotedblleft “ textendash – textemdash — textpm ± textmp ∓
    texteuro € backslash \\ textbackslash \\
";

/// Greek letters.
const GREEK: &str = "
    alpha α Alpha Α beta β Beta Β gamma γ Gamma Γ delta δ Delta Δ epsilon ϵ Epsilon Ε zeta ζ Zeta Ζ eta
    η Eta Η theta θ Theta Θ iota ι Iota Ι kappa κ Kappa Κ lambda λ Lambda Λ mu μ Mu Μ nu ν Nu Ν xi ξ Xi
    Ξ omicron ο Omicron Ο pi π Pi Π rho ρ Rho Ρ sigma σ Sigma Σ tau τ Tau Τ upsilon υ Upsilon Υ phi ϕ
    Phi Φ chi χ Chi Χ psi ψ Psi Ψ omega ω Omega Ω varepsilon ε vartheta ϑ varpi ϖ varrho ϱ varsigma ς
    varphi φ
";

/// Brackets and bars.
const DELIMITERS: &str = "
    { { } } lbrace { rbrace } langle ⟨ rangle ⟩ lvert | rvert | vert | lVert ‖ rVert ‖ Vert ‖ lceil ⌈
    rceil ⌉ lfloor ⌊ rfloor ⌋ ulcorner ⌜ urcorner ⌝ llcorner ⌞ lrcorner ⌟ lmoustache ⎰ rmoustache ⎱
";

/// Arrows.
const ARROWS: &str = "
    uparrow ↑ downarrow ↓ rightarrow → to → leftarrow ← longrightarrow ⟶ longleftarrow ⟵ leftrightarrow
    ↔ updownarrow ↕ nwarrow ↖ nearrow ↗ searrow ↘ swarrow ↙ nleftarrow ↚ nrightarrow ↛ twoheadleftarrow
    ↞ twoheadrightarrow ↠ leftarrowtail ↢ rightarrowtail ↣ mapsto ↦ hookleftarrow ↩ hookrightarrow ↪
    looparrowleft ↫ looparrowright ↬ leftrightsquigarrow ↭ nleftrightarrow ↮ Lsh ↰ Rsh ↱ curvearrowleft
    ↶ curvearrowright ↷ circlearrowleft ↺ circlearrowright ↻ leftharpoonup ↼ leftharpoondown ↽
    upharpoonright ↾ upharpoonleft ↿ rightharpoonup ⇀ rightharpoondown ⇁ downharpoonright ⇂
    downharpoonleft ⇃ rightleftarrows ⇄ leftrightarrows ⇆ leftleftarrows ⇇ upuparrows ⇈ rightrightarrows
    ⇉ downdownarrows ⇊ leftrightharpoons ⇋ rightleftharpoons ⇌ nLeftarrow ⇍ nLeftrightarrow ⇎
    nRightarrow ⇏ Leftarrow ⇐ Uparrow ⇑ Rightarrow ⇒ Downarrow ⇓ Leftrightarrow ⇔ Updownarrow ⇕
    Lleftarrow ⇚ Rrightarrow ⇛ rightsquigarrow ⇝ longleftrightarrow ⟷ Longleftarrow ⟸ Longrightarrow ⟹
    Longleftrightarrow ⟺ longmapsto ⟼
";

/// Operators, relations and shapes.
const SIGNS: &str = "
    hbar ħ ell ℓ forall ∀ complement ∁ partial ∂ exists ∃ nexists ∄ varnothing ∅ emptyset ∅ aleph ℵ
    nabla ∇ in ∈ notin ∉ ni ∋ prod ∏ coprod ∐ sum ∑ setminus ∖ smallsetminus ∖ ast ∗ circ ∘ bullet ∙
    propto ∝ infty ∞ parallel ∥ nparallel ∦ wedge ∧ vee ∨ cap ∩ cup ∪ int ∫ iint ∬ iiint ∭ oint ∮ sim ∼
    backsim ∽ simeq ≃ approx ≈ neq ≠ equiv ≡ le ≤ ge ≥ leq ≤ geq ≥ leqslant ⩽ geqslant ⩾ leqq ≦ geqq ≧
    lneqq ≨ gneqq ≩ ll ≪ gg ≫ nless ≮ ngtr ≯ nleq ≰ ngeq ≱ lesssim ≲ gtrsim ≳ lessgtr ≶ gtrless ≷ prec ≺
    succ ≻ preceq ≼ succeq ≽ precsim ≾ succsim ≿ nprec ⊀ nsucc ⊁ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇
    nsubseteq ⊈ nsupseteq ⊉ subsetneq ⊊ supsetneq ⊋ cdot · times × otimes ⊗ oplus ⊕ bigotimes ⊗ bigoplus
    ⊕ prime ' dag † dagger † pm ± mp ∓ ldots … cdots ⋯ ddots ⋱ iddots ⋰ vdots ⋮ dots … dotsc … dotsb …
    dotsm … dotsi … dotso … mid | nmid ∤ varkappa ϰ backepsilon ϶ backprime ‵ wp ℘ beth ℶ gimel ℷ daleth
    ℸ blacksquare ▪ dotplus ∔ rightangle ∟ angle ∠ measuredangle ∡ sphericalangle ∢ surfintegral ∯
    volintegral ∰ clwintegral ∱ therefore ∴ because ∵ homothetic ∻ lazysinv ∾ wr ≀ cong ≅ approxnotequal
    ≆ approxeq ≊ tildetrpl ≋ allequal ≌ asymp ≍ Bumpeq ≎ bumpeq ≏ doteq ≐ doteqdot ≑ fallingdotseq ≒
    risingdotseq ≓ eqcirc ≖ circeq ≗ estimates ≙ starequal ≛ triangleq ≜ between ≬ notlessgreater ≸
    notgreaterless ≹ uplus ⊎ sqsubset ⊏ sqsupset ⊐ sqsubseteq ⊑ sqsupseteq ⊒ sqcap ⊓ sqcup ⊔ ominus ⊖
    oslash ⊘ odot ⊙ circledcirc ⊚ circledast ⊛ circleddash ⊝ boxplus ⊞ boxminus ⊟ boxtimes ⊠ boxdot ⊡
    vdash ⊢ dashv ⊣ top ⊤ perp ⊥ truestate ⊧ forcesextra ⊨ Vdash ⊩ Vvdash ⊪ VDash ⊫ nvdash ⊬ nvDash ⊭
    nVdash ⊮ nVDash ⊯ vartriangleleft ⊲ vartriangleright ⊳ trianglelefteq ⊴ trianglerighteq ⊵ original ⊶
    image ⊷ multimap ⊸ hermitconjmatrix ⊹ intercal ⊺ veebar ⊻ rightanglearc ⊾ bigwedge ⋀ bigvee ⋁ bigcap
    ⋂ bigcup ⋃ diamond ♢ star ⋆ divideontimes ⋇ bowtie ⋈ ltimes ⋉ rtimes ⋊ leftthreetimes ⋋
    rightthreetimes ⋌ backsimeq ⋍ curlyvee ⋎ curlywedge ⋏ Subset ⋐ Supset ⋑ Cap ⋒ Cup ⋓ pitchfork ⋔
    lessdot ⋖ gtrdot ⋗ verymuchless ⋘ verymuchgreater ⋙ lesseqgtr ⋚ gtreqless ⋛ curlyeqprec ⋞
    curlyeqsucc ⋟ lnsim ⋦ gnsim ⋧ precedesnotsimilar ⋨ succnsim ⋩ ntriangleleft ⋪ ntriangleright ⋫
    ntrianglelefteq ⋬ ntrianglerighteq ⋭ udots ⋰ barwedge ⌅ frown ⌢ smile ⌣ square □ bigtriangleup △
    blacktriangle ▴ vartriangle ▵ blacktriangleright ▸ triangleright ▹ bigtriangledown ▽
    blacktriangledown ▾ triangledown ▿ blacktriangleleft ◂ triangleleft ◃ lozenge ◊ bigcirc ◯ flat ♭
    natural ♮ sharp ♯ blacklozenge ⧫ clockoint ⨏ sqrint ⨖ amalg ⨿ lessapprox ⪅ gtrapprox ⪆ lneq ⪇ gneq ⪈
    lnapprox ⪉ gnapprox ⪊ lesseqqgtr ⪋ gtreqqless ⪌ eqslantless ⪕ eqslantgtr ⪖ precneqq ⪵ succneqq ⪶
    precapprox ⪷ succapprox ⪸ precnapprox ⪹ succnapprox ⪺ subseteqq ⫅ supseteqq ⫆ subsetneqq ⫋
    supsetneqq ⫌ lnot ¬ div ÷ hslash ℏ mho ℧ surd √ Colon ∷ lessequivlnt ≲ greaterequivlnt ≳ preccurlyeq
    ≼ succcurlyeq ≽ upslopeellipsis ⋰ downslopeellipsis ⋱ circledS Ⓢ diagup ╱ Angle ⦜ Equal ⩵
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_is_of_pairs() {
        for list in [LETTERS, GREEK, DELIMITERS, ARROWS, SIGNS] {
            assert_eq!(list.split_whitespace().count() % 2, 0, "{list}");
        }
        for (name, text) in [("pi", "π"), ("varphi", "φ"), ("cdot", "·"), ("cup", "∪"), ("lim", "lim")] {
            assert_eq!(symbol(name), Some(text));
        }
        assert_eq!(symbol("binom"), None);
    }
}
