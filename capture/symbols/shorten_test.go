package symbols

import (
	"strings"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

func TestTemplatesAreShortened(t *testing.T) {
	for name, want := range map[string]string{
		"main":                              "main",
		"std::map<int, long>::insert":       "std::map<...>::insert",
		"f<int>":                            "f<...>",
		"f<>":                               "f<>",
		"std::vector<std::vector<int> >::f": "std::vector<...>::f",
		"a<b<c>>::d<e>":                     "a<...>::d<...>",
		"operator<":                         "operator<",
		"operator<< <char>":                 "operator<< <...>",
		"std::operator<< <std::char_traits<char> >": "std::operator<< <...>",
		"A<int>::operator<":                         "A<...>::operator<",
		"std::operator+<char, B<char> >":            "std::operator+<...>",
		"operator==<int>":                           "operator==<...>",
		"A<&B::operator-->::f":                      "A<...>::f",
		"A<int>::operator new<int>":                 "A<...>::operator new<...>",
		"A<int>::operator<=>":                       "A<...>::operator<=>",
		"A<int>::operator->":                        "A<...>::operator->",
		"A<int>::operator->*":                       "A<...>::operator->*",
		"A<int>::operator>>=":                       "A<...>::operator>>=",
		"A<int>::operator< <long>":                  "A<...>::operator< <...>",
		"A<int>::operator()<long>":                  "A<...>::operator()<...>",
		"A<int>::operator std::vector<long>":        "A<...>::operator std::vector<...>",
		"A<&B::operator-> >::f":                     "A<...>::f",
		"A<&B::operator<< >::f":                     "A<...>::f",
		"my_operator<int>::f":                       "my_operator<...>::f",
		"f(std::vector<int>)::{lambda(std::map<int, int>)#1}::operator()": "" +
			"f(std::vector<...>)::{lambda(std::map<...>)#1}::operator()",
		"f<int>::{lambda(auto:1)#1}::operator()<long>": "" +
			"f<...>::{lambda(auto:1)#1}::operator()<...>",
		"A<{lambda()#1}>::f": "A<...>::f",
		"A<(3 > 2), int>::f": "A<...>::f",
		"A<(a < b)>::f":      "A<...>::f",
		"std::enable_if<((sizeof (B<int>)) > (4))>::f": "std::enable_if<...>::f",
		"(anonymous namespace)::A<(anonymous namespace)::B>::f[abi:cxx11]": "" +
			"(anonymous namespace)::A<...>::f[abi:cxx11]",
		"<alloc::vec::Vec<u8> as core::ops::drop::Drop>::drop": "" +
			"<alloc::vec::Vec<...> as core::ops::drop::Drop>::drop",
		"<&T as core::fmt::Debug>::fmt": "<&T as core::fmt::Debug>::fmt",
		"<dyn core::ops::FnOnce<(u8,), Output = u8>>::call_once": "" +
			"<dyn core::ops::FnOnce<...>>::call_once",
		"core::ptr::drop_in_place::<alloc::vec::Vec<u8>>": "core::ptr::drop_in_place::<...>",
		"<fn(u8) -> u32 as core::ops::function::FnOnce<(u8,)>>::call_once": "" +
			"<fn(u8) -> u32 as core::ops::function::FnOnce<...>>::call_once",
		"a::f::<fn(u8) -> u32>::{closure#0}": "a::f::<...>::{closure#0}",
		"a::f::<'<'>":                        "a::f::<...>",
		"f<int":                              "f<int",
		"f<(int>)":                           "f<(int>)",
	} {
		if got := Shorten(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestNamesAreShortenedOnRequest(t *testing.T) {
	const mangled, full, short = "_ZNSt6vectorIiSaIiEE9push_backERKi",
		"std::vector<int, std::allocator<int> >::push_back", "std::vector<...>::push_back"
	if got := New(Options{}).Name(mangled); got != full {
		t.Errorf("%s, want %s", got, full)
	}
	s := New(Options{Shorten: true})
	if got := s.Name(mangled); got != short {
		t.Errorf("%s, want %s", got, short)
	}
	// Other languages have brackets of their own.
	if got := s.Name("py::f<int>:/a.py"); got != "py::f<int>:/a.py" {
		t.Error(got)
	}
}

// The longest list of names at hand: the C++ library's.
func TestShortenedNamesAreWhole(t *testing.T) {
	path := strings.TrimSpace(output(t, "gcc", "-print-file-name=libstdc++.so.6"))
	if !strings.HasPrefix(path, "/") {
		t.Skip("libstdc++.so.6 is missing")
	}
	table := readFile(t, path)
	n := 0
	for i := range table.Len() {
		full := Demangle(table.At(i).Name)
		short := Shorten(full)
		if strings.Contains(full, "<") && short != full {
			n++
		}
		rest := short
		for _, o := range operators {
			rest = strings.ReplaceAll(rest, "operator"+o, "")
		}
		if rest = strings.ReplaceAll(rest, "<...>", ""); strings.ContainsAny(rest, "<>") {
			t.Errorf("%s: %s", full, short)
		}
	}
	if n < 1000 {
		t.Errorf("%d names with templates", n)
	}
}

func FuzzShorten(f *testing.F) {
	f.Add("std::operator<< <std::char_traits<char> >")
	f.Add("<a as b<c>>::d")
	for _, name := range inputs.Names(200, "_ZN", "/usr/lib/x86_64-linux-gnu/lib*.so.?") {
		f.Add(Demangle(name))
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, name string) {
		defer costs.For(len(name)).Check(t)()
		if short := Shorten(name); len(short) > 3*len(name) || !strings.Contains(name, "<") && short != name {
			t.Errorf("%q: %q", name, short)
		}
	}))
}
