package explore

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"unspool/capture/output/human"
)

// fetched returns a profile when pprof fetches one.
type fetched struct{ *profile.Profile }

func (f fetched) Fetch(string, time.Duration, time.Duration) (*profile.Profile, string, error) {
	return f.Profile, "", nil
}

// flags are the arguments of a command line, as pprof expects one.
type flags struct {
	*flag.FlagSet
	args []string
}

func newFlags(args []string) flags {
	f := flags{flag.NewFlagSet("pprof", flag.ContinueOnError), args}
	f.SetOutput(io.Discard)
	return f
}

func (f flags) StringList(name, def, usage string) *[]*string {
	f.String(name, def, usage)
	return new([]*string)
}

func (f flags) ExtraUsage() string   { return "" }
func (f flags) AddExtraUsage(string) {}

func (f flags) Parse(func()) []string {
	if f.FlagSet.Parse(f.args) != nil {
		return nil
	}
	return f.Args()
}

// messages receives the messages of pprof.
type messages struct{ Options }

func (m messages) PrintErr(args ...any) {
	if m.Problem != nil {
		m.Problem(human.Clean(strings.Join(strings.Fields(fmt.Sprint(args...)), " ")))
	}
}

// Write is told what went wrong in serving: a fault in a page comes with a stack, which is left out.
func (m messages) Write(b []byte) (int, error) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	m.PrintErr(string(line))
	return len(b), nil
}

func (m messages) ReadLine(string) (string, error)              { return "", io.EOF }
func (m messages) Print(...any)                                 {}
func (m messages) IsTerminal() bool                             { return false }
func (m messages) WantBrowser() bool                            { return false }
func (m messages) SetAutoComplete(complete func(string) string) {}
