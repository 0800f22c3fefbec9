package main

import "github.com/spf13/pflag"

// A filled is the value of an option that would be left out in silence if it were empty, as in
// -p "$(pidof nginx)" where there is no such process.
type filled struct{ pflag.Value }

// Set sets the value, unless it is empty.
func (v filled) Set(value string) error {
	if value == "" {
		return valueError("must not be empty")
	}
	return v.Value.Set(value)
}

// mustBeFilled refuses empty values of options.
func mustBeFilled(fl *pflag.FlagSet, options ...string) {
	for _, name := range options {
		f := fl.Lookup(name)
		f.Value, f.DefValue = filled{f.Value}, "" // a default "[]" would be shown
	}
}
