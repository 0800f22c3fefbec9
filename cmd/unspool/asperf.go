package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"unspool/capture/view/report"
)

// asPerf has the options of perf report that have another name here.
type asPerf struct {
	input string
	sort  string
}

func (p *asPerf) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVarP(&p.input, "input", "i", "", "as perf's: the recording, `FILE`")
	fl.StringVar(&p.sort, "sort", "", "as perf's: --by for `KEYS` such as comm,dso,symbol")
	fl.Bool("stdio", true, "print text, which is always done: for those used to perf")
	_ = fl.MarkHidden("stdio")
	refuseEmpty(fl, "input", "sort")
	c.RegisterFlagCompletionFunc("sort", cobra.NoFileCompletions)
}

// recordings are those that are given, as arguments or by -i.
func (p *asPerf) recordings(args []string) ([]string, error) {
	if p.input == "" {
		return args, nil
	}
	if len(args) > 0 {
		return nil, fmt.Errorf("-i %s and %s cannot be used together", quoted(p.input), quoted(args[0]))
	}
	return []string{p.input}, nil
}

// sortKeys are what perf report --sort calls what --by adds up by. Functions are shown with their images.
var sortKeys = map[string]report.By{
	"comm": report.Comm, "pid": report.Process, "tid": report.Thread, "dso": report.Image, "symbol": report.Function,
	"sym": report.Function, "srcfile": report.Source, "srcline": report.Source,
}

// by is what --sort asks to add up by: functions are shown within all else, with their images beside.
func (p *asPerf) by() (report.By, error) {
	keys := strings.Split(p.sort, ",")
	functions := slices.ContainsFunc(keys, func(k string) bool { return sortKeys[k] == report.Function })
	by := report.Function
	for _, key := range keys {
		b, ok := sortKeys[key]
		switch {
		case !ok:
			return 0, fmt.Errorf("--sort %s: %q is none of comm, pid, tid, dso, symbol, srcfile, srcline: --by adds up by %s",
				p.sort, key, strings.Join(report.ByNames(), ", "))
		case b == report.Function, b == report.Image && functions:
		case by == report.Function:
			by = b
		case by != b:
			return 0, fmt.Errorf("--sort %s: samples are added up by one of these, with the functions of each: --by %v or "+
				"--by %v", p.sort, by, b)
		}
	}
	return by, nil
}

// besideFile is the value of --html at the end of a command line, where it has none.
const besideFile = "\x00"

// loneHTML gives that value to report's --html: the parser of options would miss one.
func loneHTML(args []string) []string {
	if n := len(args); n > 1 && args[0] == "report" && args[n-1] == "--html" {
		return append(slices.Clone(args[:n-1]), "--html="+besideFile)
	}
	return args
}

// htmlPage is the name of the page of --html about one recording.
func htmlPage(page, file string, given bool) (string, error) {
	switch {
	case page == besideFile && file == "-":
		return "", errors.New("--html: the recording has no name: give one for the page, --html PAGE.html")
	case page == besideFile:
		return file + ".html", nil
	case page == "-":
		return "", errors.New("--html -: name a file, or use 'unspool convert FILE -o - --format flamegraph'")
	case !given && !strings.HasSuffix(strings.ToLower(page), ".html"):
		return "", fmt.Errorf("--html %s: the name of a page ends in .html: 'unspool report %[1]s --html' writes one about "+
			"the recording %[1]s", quoted(page))
	}
	return page, nil
}
