// Package readers is the module of what only tests import: programs that read what unspool writes. They are
// kept out of unspool's module so that its users' go.sum stays short. Tests start them with `go run`.
//
//   - chromium opens a page in a headless browser; package testdata/browser of unspool's module speaks with
//     it.
//   - jsonschema checks JSON against a schema.
package readers
