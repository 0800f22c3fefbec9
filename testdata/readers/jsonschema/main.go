// Command jsonschema checks the JSON values in the files of its arguments against a JSON Schema:
//
//	jsonschema SCHEMA FILE…
//
// It prints what does not keep to the schema, and then ends with status 1.
package main

import (
	"fmt"
	"os"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: jsonschema SCHEMA FILE…")
		os.Exit(2)
	}
	schema, err := jsonschema.NewCompiler().Compile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	status := 0
	for _, file := range os.Args[2:] {
		if err := check(schema, file); err != nil {
			fmt.Printf("%s: %v\n", file, err)
			status = 1
		}
	}
	os.Exit(status)
}

func check(schema *jsonschema.Schema, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	value, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		return err
	}
	return schema.Validate(value)
}
