package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	schema, err := jsonschema.NewCompiler().Compile(
		write("schema.json", `{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, good := range map[string]bool{
		`{"n": 1}`:     true,
		`{"n": "one"}`: false,
		`{}`:           false,
		`{"n": 1`:      false,
	} {
		if err := check(schema, write("value.json", text)); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}
