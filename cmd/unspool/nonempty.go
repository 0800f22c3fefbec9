package main

import "github.com/spf13/pflag"

// nonEmpty is the value of an option that rejects an empty one, as from -p "$(pidof nginx)" where there is no such
// process.
type nonEmpty struct{ pflag.Value }

// Set sets the value, unless it is empty.
func (v nonEmpty) Set(value string) error {
	if value == "" {
		return valueError("must not be empty")
	}
	return v.Value.Set(value)
}

// refuseEmpty refuses empty values of options.
func refuseEmpty(fl *pflag.FlagSet, options ...string) {
	for _, name := range options {
		f := fl.Lookup(name)
		f.Value, f.DefValue = nonEmpty{f.Value}, "" // a default "[]" would be shown
	}
}
