// Package browser opens pages in headless Chromium for tests: it clicks and types as a user would, reads
// what the page shows, and notes its errors and warnings. Only tests import it.
//
// The browser is driven by a program of another module (testdata/readers/chromium), which needs packages that
// unspool does not. It is built by the go command when it is first started. All tests of a package share one browser:
// its start costs more than most pages do.
package browser
