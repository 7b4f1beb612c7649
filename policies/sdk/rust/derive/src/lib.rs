//! The derives of `allot-policy`.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{
    Attribute, Data, DeriveInput, Expr, ExprLit, Field, Fields, Lit, Meta, parse_macro_input,
    spanned::Spanned,
};

/// Derives `Settings` for a struct whose fields each have a doc comment and a default.
#[proc_macro_derive(Settings, attributes(setting))]
pub fn settings(input: TokenStream) -> TokenStream {
    expand(parse_macro_input!(input as DeriveInput), settings_of)
}

/// Derives `Choice` for a fieldless enum: `MaxVariance` is the text `max-variance`.
#[proc_macro_derive(Choice)]
pub fn choice(input: TokenStream) -> TokenStream {
    expand(parse_macro_input!(input as DeriveInput), choice_of)
}

/// Derives `State` for a struct of fields that can be written as bytes.
#[proc_macro_derive(State)]
pub fn state(input: TokenStream) -> TokenStream {
    expand(parse_macro_input!(input as DeriveInput), state_of)
}

fn expand(input: DeriveInput, make: fn(&DeriveInput) -> syn::Result<Tokens>) -> TokenStream {
    make(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn settings_of(input: &DeriveInput) -> syn::Result<Tokens> {
    let name = &input.ident;
    let mut described = Vec::new();
    let mut read = Vec::new();
    for field in fields(input)? {
        let ident = &field.ident;
        let ty = &field.ty;
        let setting = kebab(&ident.as_ref().expect("fields() gives named fields").to_string());
        let summary = doc(&field.attrs)
            .ok_or_else(|| syn::Error::new(field.span(), "a setting needs a doc comment: its summary"))?;
        let Given { default, minimum, maximum } = given(field)?;
        described.push(quote! {
            ::allot_policy::types::Setting {
                name: #setting.to_owned(),
                default: <#ty as ::allot_policy::FromValue>::into_value(#default),
                summary: #summary.to_owned(),
            }
        });
        read.push(match (minimum, maximum) {
            (None, None) => quote! { #ident: ::allot_policy::settings_read::<#ty>(run, #setting)? },
            (minimum, maximum) => {
                let minimum = minimum.map_or(quote!(f64::NEG_INFINITY), |least| quote!(f64::from(#least)));
                let maximum = maximum.map_or(quote!(f64::INFINITY), |most| quote!(f64::from(#most)));
                quote! { #ident: ::allot_policy::settings_within::<#ty>(run, #setting, #minimum, #maximum)? }
            }
        });
    }
    Ok(quote! {
        impl ::allot_policy::Settings for #name {
            fn describe() -> Vec<::allot_policy::types::Setting> {
                vec![#(#described),*]
            }

            fn read(run: &::allot_policy::types::Run) -> Result<Self, ::allot_policy::types::Error> {
                Ok(Self { #(#read),* })
            }
        }
    })
}

fn choice_of(input: &DeriveInput) -> syn::Result<Tokens> {
    let name = &input.ident;
    let Data::Enum(data) = &input.data else {
        return Err(syn::Error::new(input.span(), "Choice is for enums"));
    };
    let mut idents = Vec::new();
    let mut texts = Vec::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(syn::Error::new(variant.span(), "a choice has no fields"));
        }
        texts.push(kebab(&variant.ident.to_string()));
        idents.push(&variant.ident);
    }
    Ok(quote! {
        impl ::allot_policy::Choice for #name {
            const NAMES: &'static [&'static str] = &[#(#texts),*];

            fn from_name(name: &str) -> Option<Self> {
                match name {
                    #(#texts => Some(Self::#idents),)*
                    _ => None,
                }
            }

            fn name(&self) -> &'static str {
                match self {
                    #(Self::#idents => #texts),*
                }
            }
        }
    })
}

fn state_of(input: &DeriveInput) -> syn::Result<Tokens> {
    let name = &input.ident;
    let fields = fields(input)?;
    let idents: Vec<_> = fields.iter().map(|f| &f.ident).collect();
    let types: Vec<_> = fields.iter().map(|f| &f.ty).collect();
    let layout = quote!(#(#idents: #types),*).to_string();
    Ok(quote! {
        impl ::allot_policy::State for #name {
            fn save(&self) -> Vec<u8> {
                let mut bytes = Vec::new();
                ::allot_policy::Field::put(&::allot_policy::state_mark(#layout), &mut bytes);
                #(::allot_policy::Field::put(&self.#idents, &mut bytes);)*
                bytes
            }

            fn load(mut bytes: &[u8]) -> Result<Self, String> {
                const MARK: u32 = ::allot_policy::state_mark(#layout);
                if <u32 as ::allot_policy::Field>::take(&mut bytes) != Some(MARK) {
                    return Err("it was written by another policy, or another version of this one".to_owned());
                }
                let cut = || "it ends too early".to_owned();
                let state = Self {
                    #(#idents: <#types as ::allot_policy::Field>::take(&mut bytes).ok_or_else(cut)?),*
                };
                if bytes.is_empty() { Ok(state) } else { Err("it goes on after its end".to_owned()) }
            }
        }
    })
}

fn fields(input: &DeriveInput) -> syn::Result<Vec<&Field>> {
    match &input.data {
        Data::Struct(data) if matches!(data.fields, Fields::Named(_)) => Ok(data.fields.iter().collect()),
        _ => Err(syn::Error::new(input.span(), "expected a struct with named fields")),
    }
}

fn doc(attrs: &[Attribute]) -> Option<String> {
    let lines: Vec<String> = attrs
        .iter()
        .filter_map(|attr| match &attr.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

/// What `#[setting(…)]` gives of a field.
struct Given {
    default: Tokens,
    minimum: Option<Expr>,
    maximum: Option<Expr>,
}

fn given(field: &Field) -> syn::Result<Given> {
    let missing = || syn::Error::new(field.span(), "a setting needs #[setting(default = …)]");
    let attr = field.attrs.iter().find(|a| a.path().is_ident("setting")).ok_or_else(missing)?;
    let (mut default, mut minimum, mut maximum) = (None, None, None);
    attr.parse_nested_meta(|meta| {
        let of = match meta.path.get_ident().map(ToString::to_string).as_deref() {
            Some("default") => &mut default,
            Some("minimum") => &mut minimum,
            Some("maximum") => &mut maximum,
            _ => return Err(meta.error("expected `default = …`, `minimum = …` or `maximum = …`")),
        };
        *of = Some(meta.value()?.parse::<Expr>()?);
        Ok(())
    })?;
    let default = default.ok_or_else(missing)?;
    // A string literal is a `&str`; the field holds a `String`.
    let default = match &default {
        Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => quote!(#default.to_owned()),
        _ => quote!(#default),
    };
    Ok(Given { default, minimum, maximum })
}

/// `max_variance` and `MaxVariance` both become `max-variance`.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for (i, c) in name.chars().enumerate() {
        if c.is_uppercase() && i > 0 {
            text.push('-');
        }
        text.push(if c == '_' { '-' } else { c.to_ascii_lowercase() });
    }
    text
}
