// Package browser opens pages in headless Chromium for tests: it clicks and types as a reader would, asks the
// page what it shows, and notes what the page complains of. Only tests import it.
//
// The browser is driven by a program of another module (testdata/readers/chromium), which needs packages that
// unspool does not. It is built by the go command when it is first started.
package browser
