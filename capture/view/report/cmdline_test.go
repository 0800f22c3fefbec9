package report

import (
	"strings"
	"testing"
)

// A command line that does not fit is shown by what others of its program do not have.
func TestCommandLinesAreShortened(t *testing.T) {
	t.Parallel()
	const common = "-quiet -imultiarch x86_64-linux-gnu -D_GNU_SOURCE"
	c := newCommandLines([]group{
		{cmdline: "/usr/lib/cc1plus " + common + " a.cc -dumpbase a.cc -o /tmp/1.s"},
		{cmdline: "/usr/lib/cc1plus " + common + " b.cc -dumpbase b.cc -o /tmp/2.s"},
		{cmdline: "/usr/bin/ld -quiet a.o"}, {cmdline: "postgres: writer"}, {},
	})
	for _, r := range []struct {
		line    string
		columns int
		want    string
	}{
		{"/usr/lib/cc1plus " + common + " a.cc -dumpbase a.cc -o /tmp/1.s", 50, "cc1plus … a.cc … a.cc … /tmp/1.s"},
		{"/usr/lib/cc1plus " + common + " a.cc -dumpbase a.cc -o /tmp/1.s", 20, "cc1plus … a…/tmp/1.s"},
		{"/usr/lib/cc1plus " + common + " b.cc", 200, "cc1plus " + common + " b.cc"},
		{"/usr/bin/ld -quiet a.o", 12, "ld -qu…t a.o"},
		{"/usr/bin/ld", 12, "ld"},
		{"postgres: writer", 16, "postgres: writer"},
		{"/", 12, "/"}, {" x", 12, " x"}, {"\x1b[31m", 12, "?[31m"},
		{strings.Repeat("x", 1<<20), 12, "xxxxxx…xxxxx"},
	} {
		if got := c.short(r.line, r.columns); got != r.want {
			t.Errorf("%.60q in %d columns: %q, want %q", r.line, r.columns, got, r.want)
		}
	}
}
