package demangle_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/kubewasm/kubewasm/internal/demangle"
)

// TestRust has names that rustc 1.63 and 1.95 gave to functions.
func TestRust(t *testing.T) {
	for name, want := range map[string]string{
		// The legacy mangling.
		"_ZN4zone4Zone6filter17hdfb9a88cb0a19821E":                                                                            "zone::Zone::filter",
		"_ZN8kubewasm5panic7install28_$u7b$$u7b$closure$u7d$$u7d$17hfb9a88cb0a198216E":                                        "kubewasm::panic::install::{{closure}}",
		"_ZN50_$LT$$RF$mut$u20$W$u20$as$u20$core..fmt..Write$GT$9write_str17he04451e4654e3f3bE.llvm.147178141737394":          "<&mut W as core::fmt::Write>::write_str",
		"_ZN5alloc3str75_$LT$impl$u20$alloc..slice..Join$LT$$RF$str$GT$$u20$for$u20$$u5b$S$u5d$$GT$4join17hfb9275a5d8b1452aE": "alloc::str::<impl alloc::slice::Join<&str> for [S]>::join",
		"_ZN29BalancingContext$LT$K$C$V$GT$21merge_tracking_parent17h6fc2cf1dacda3e86E":                                       "BalancingContext<K,V>::merge_tracking_parent",
		"_ZN1a13gr$uf6$$udf$e17h1893a89bc6a4262cE":                                                                            "a::größe",

		// v0.
		"_RNvNvNtCs9mg4hJbtRZk_1a4zone3run5inner":            "a::zone::run::inner",
		"_RNvNtCsjrHSEGnQ3l9_3std2io5stdio.0":                "std::io::stdio",
		"_RNvNtCsjrHSEGnQ3l9_3std6thread4main.llvm.123":      "std::thread::main",
		"_RINvNtCs9mg4hJbtRZk_1a4zone4whatThEEB4_":           "a::zone::what::<(u8,)>",
		"_RINvNtCs9mg4hJbtRZk_1a4zone4whatFUKChOlEzEB4_":     `a::zone::what::<unsafe extern "C" fn(u8, *mut i32) -> !>`,
		"_RINvNtCs9mg4hJbtRZk_1a4zone4whatFG_RL0_eEuEB4_":    "a::zone::what::<for<'a> fn(&'a str)>",
		"_RINvNtCs9mg4hJbtRZk_1a4zone3arrlKj3_Kb1_Kcb5_EB4_": "a::zone::arr::<i32, 3, true, 'µ'>",
		"_RINvNtCs9mg4hJbtRZk_1a4zone3negKan5_EB4_":          "a::zone::neg::<-5>",
		"_RNvCs9mg4hJbtRZk_1au9gre_6ka8i":                    "a::punycode{gre_6ka8i}",
		"_RINvNtCs9mg4hJbtRZk_1a4zone4whatDG_INtNtNtCs6IL9ONYDOZW_4core3ops8function2FnTRL0_eQL0_ShEEp6OutputyEL_EB4_":                                       "a::zone::what::<dyn for<'a> core::ops::function::Fn<(&'a str, &'a mut [u8]), Output = u64>>",
		"_RNCNvXNtCs6xxl1lAjzDf_1a4zoneINtB4_4ZoneINtNtCslNYArtu3iFV_5alloc3vec3VecThReEEENtB4_6Filter6filter0B6_":                                           "<a::zone::Zone<alloc::vec::Vec<(u8, &str)>> as a::zone::Filter>::filter::{closure#0}",
		"_RNSNvYNCINvNtCsjrHSEGnQ3l9_3std2rt10lang_startuE0INtNtNtCsgEmfK2I1SDS_4core3ops8function6FnOnceuE9call_once6vtableCs6xxl1lAjzDf_1a":                "<std::rt::lang_start<()>::{closure#0} as core::ops::function::FnOnce<()>>::call_once::{shim:vtable#0}",
		"_RNvMNvXCs6xxl1lAjzDf_1aINtNtB5_4zone4ZonePhENtNtCsgEmfK2I1SDS_4core3fmt7Display3fmtNtB2_5Inner2go":                                                 "<<a::zone::Zone<*const u8> as core::fmt::Display>::fmt::Inner>::go",
		"_RINvNtCs9mg4hJbtRZk_1a4zone4whatRDNtNtNtNtCs6IL9ONYDOZW_4core4iter6traits8iterator8Iteratorp4ItemINtNtCsihNoVIYWwLU_5alloc5boxed3BoxAnj4_EEL_EB4_": "a::zone::what::<&dyn core::iter::traits::iterator::Iterator<Item = alloc::boxed::Box<[i128; 4]>>>",
	} {
		if got := demangle.Rust(name); got != want {
			t.Errorf("Rust(%q) is\n%q, want\n%q", name, got, want)
		}
	}
}

func TestOtherNamesStayAsTheyAre(t *testing.T) {
	for what, name := range map[string]string{
		"nothing":                             "",
		"a name in C":                         "kw_export_hook",
		"a name in Go":                        "main.(*plugin).Decide",
		"a name in AssemblyScript":            "assembly/index/Zone#filter",
		"C++":                                 "_ZN4zone4Zone6filterE",
		"C++ with parameters":                 "_ZN4zone4Zone6filterEv",
		"a path of a hash only":               "_ZN17hdfb9a88cb0a19821E",
		"no end":                              "_ZN4zone17hdfb9a88cb0a19821",
		"a length beyond the end":             "_ZN4zone99999filterE",
		"a length beyond every number":        "_ZN99999999999999999999zoneE",
		"a line feed":                         "_ZN7a$ua$bc17hdfb9a88cb0a19821E",
		"an escape without an end":            "_ZN4$u0a17hdfb9a88cb0a19821E",
		"an unknown escape":                   "_ZN4$XX$17hdfb9a88cb0a19821E",
		"an R":                                "_R",
		"a word":                              "_Reset",
		"a reference to itself":               "_RB_",
		"a reference to what it is in":        "_RNvB_1a",
		"a reference to what is in it, twice": "_RINvC1a1bTBa_EE",
		"a name beyond the end":               "_RNvC1a9b",
		"a lifetime that is not bound":        "_RINvC1a1bRL0_eE",
		"a list without an end":               "_RINvC1a1bhhh",
		"a character that is none":            "_RINvC1a1bKcd800_E",
		"a character that is not printable":   "_RINvC1a1bKca_E",
		"a deep type":                         "_RINvC1a1b" + strings.Repeat("S", 5000) + "hE",
		"many lifetimes":                      "_RINvC1a1bFGzzzzzzzz_EuE",
		// Each tuple has the one before it twice.
		"a type that doubles": "_RINvC1a1bTThhETB7_B7_ETBb_Bb_ETBi_Bi_ETBp_Bp_ETBw_Bw_ETBD_BD_ETBK_BK_ETBR_BR_ETBY_BY_ETB15_B15_ETB1c_B1c_ETB1l_B1l_EEE",
	} {
		if got := demangle.Rust(name); got != name {
			t.Errorf("%s: Rust(%q) is %q", what, name, got)
		}
	}
}

// FuzzRust holds that any name stays as it is, or becomes a printable one of limited length.
func FuzzRust(f *testing.F) {
	f.Add("_ZN5alloc7raw_vec19RawVec$LT$T$C$A$GT$7reserve17h04ed46dfd2ae23deE")
	f.Add("_RNCNvXNtCs6xxl1lAjzDf_1a4zoneINtB4_4ZoneINtNtCslNYArtu3iFV_5alloc3vec3VecThReEEENtB4_6Filter6filter0B6_")
	f.Add("_RINvNtC1a4zone4whatDG_INtNtNtC4core3ops8function2FnTRL0_eQL0_ShEEp6OutputyEL_EB4_")
	f.Add("_RINvC1a3arrlKj3_Kb1_Kce4_Kan5_FUKChOlEzE")
	f.Fuzz(func(t *testing.T, name string) {
		got := demangle.Rust(name)
		if got == name {
			return
		}
		if len(got) > 4<<10 {
			t.Errorf("Rust(%q) has %d bytes", name, len(got))
		}
		for _, c := range got {
			if !unicode.IsPrint(c) {
				t.Errorf("Rust(%q) is %q, which has %q", name, got, c)
			}
		}
	})
}
