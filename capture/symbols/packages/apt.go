package packages

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The debug symbols of Debian's and Ubuntu's packages are in archives of their own, which apt does not have among its
// sources when it is installed. What is said of them is made from the sources that it has: no host stands here.

// A source is an archive that apt has packages from (sources.list(5)).
type source struct {
	uri, suite string
	main       bool   // it has the component main
	signedBy   string // a file with its key or a fingerprint; "" for none
	inline     bool   // the key stands in the source itself
	disabled   bool
	file       string // that it stands in
}

const (
	mostSources    = 1000   // files with sources
	mostExpanded   = 10_000 // sources in all
	debugSuffix    = "-debug"
	aptLists       = "/var/lib/apt/lists"
	debugSources   = "/etc/apt/sources.list.d/debug.list"
	dbgsymSuffix   = "-dbgsym"
	ubuntusArchive = "ddebs" // in the name of its host
)

// aptInstall is how packages with debug symbols are installed: the command and, where apt does not know them, what has
// to be done before.
func (s *System) aptInstall(names []string, ubuntu bool) string {
	sources := s.aptSources()
	isDebug, archive := (*source).isDebians, "Debian's"
	if ubuntu {
		isDebug, archive = (*source).isUbuntus, "Ubuntu's"
	}
	var debug *source
	for i := range sources {
		if isDebug(&sources[i]) && (debug == nil || debug.disabled) {
			debug = &sources[i]
		}
	}
	inMain := func(name string) bool { return !strings.HasSuffix(name, dbgsymSuffix) }
	needed := slices.DeleteFunc(slices.Clone(names), inMain)
	switch {
	case len(needed) == 0:
		return s.aptCommand(names, "_dists_")
	case debug != nil && !debug.disabled:
		if names = s.known(names, debug.suite); len(names) == 0 {
			return ""
		}
		return s.aptCommand(names, listOf(debug.suite))
	}
	text := fmt.Sprintf("apt does not know %s before its sources have %s archive of debug symbols: ",
		strings.Join(needed, ", "), archive)
	install := "apt update && apt install " + strings.Join(names, " ")
	if debug != nil {
		return text + fmt.Sprintf("enable it in %s, then `%s`", debug.file, install)
	}
	if ubuntu {
		return text + fmt.Sprintf("%s, whose key `apt install ubuntu-dbgsym-keyring` installs, then `%s`", ubuntusArchive,
			install)
	}
	if line := s.debugLine(sources); line != "" {
		return text + fmt.Sprintf("`echo '%s' > %s && %s`", line, debugSources, install)
	}
	return text + fmt.Sprintf("debian-debug, suite %s, then `%s`", s.release("VERSION_CODENAME", "SUITE")+debugSuffix,
		install)
}

// aptCommand installs packages. The lists of the archive are fetched before if there is none whose name has a part.
func (s *System) aptCommand(names []string, part string) string {
	command := "apt install " + strings.Join(names, " ")
	if len(s.lists(part)) == 0 {
		command = "apt update && " + command
	}
	return "`" + command + "`"
}

func (s *source) isDebians() bool { return strings.HasSuffix(s.suite, debugSuffix) }

func (s *source) isUbuntus() bool { return strings.Contains(s.uri, "//"+ubuntusArchive+".") }

// What may be in a command that somebody copies into a shell.
var (
	plainURI   = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:[A-Za-z0-9._~:/%+-]+$`) // without a password
	plainSuite = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)
	plainKey   = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9._/+-]*$`)
)

// notReleases are what the names of suites end in that are additional to a release.
var notReleases = regexp.MustCompile(`-(updates|security|backports|backports-sloppy|debug)$`)

// debugLine is the source of Debian's archive of debug symbols, made from that of the release; "" if there is none. In
// the URI, "debian" becomes "debian-debug".
func (s *System) debugLine(sources []source) string {
	codename := s.release("VERSION_CODENAME", "")
	var line string
	for _, src := range sources {
		if src.disabled || !src.main || src.inline || notReleases.MatchString(src.suite) {
			continue
		}
		uri := s.mirror(src.uri)
		parts := strings.Split(strings.TrimRight(uri, "/"), "/")
		at := slices.Index(parts, "debian")
		if at < 0 || !plainURI.MatchString(uri) || !plainSuite.MatchString(src.suite) {
			continue
		}
		parts[at] = "debian-debug"
		key := ""
		if src.signedBy != "" {
			if !plainKey.MatchString(src.signedBy) {
				continue
			}
			key = "[signed-by=" + src.signedBy + "] "
		}
		if line == "" || src.suite == codename {
			line = "deb " + key + strings.Join(parts, "/") + " " + src.suite + debugSuffix + " main"
		}
		if src.suite == codename {
			break
		}
	}
	return line
}

// mirror is the first URI of a list of mirrors in a file, mirror+file:PATH, or the URI itself.
func (s *System) mirror(uri string) string {
	path, ok := strings.CutPrefix(uri, "mirror+file:")
	if !ok {
		return uri
	}
	for line := range strings.Lines(string(s.read("/" + strings.TrimLeft(path, "/")))) {
		if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(fields[0], "#") {
			return fields[0]
		}
	}
	return uri
}

// aptSources reads the sources of apt, both kinds of files.
func (s *System) aptSources() (all []source) {
	files := []string{"/etc/apt/sources.list"}
	entries, _ := os.ReadDir(filepath.Join(s.Root, "/etc/apt/sources.list.d"))
	for _, e := range entries[:min(len(entries), mostSources)] {
		files = append(files, "/etc/apt/sources.list.d/"+e.Name())
	}
	for _, file := range files {
		var found []source
		switch filepath.Ext(file) {
		case ".list":
			found = oneLine(string(s.read(file)))
		case ".sources":
			found = stanzas(string(s.read(file)))
		}
		for i := range found {
			found[i].file = file
		}
		if all = append(all, found...); len(all) > mostExpanded {
			return all[:mostExpanded]
		}
	}
	return all
}

// oneLine reads sources of the form "deb [option=value …] URI SUITE COMPONENT…".
func oneLine(text string) (all []source) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !ok || strings.TrimLeft(rest, " \t") == rest { // also deb-src
			continue
		}
		var src source
		if options, after, found := strings.Cut(strings.TrimSpace(rest), "]"); found && strings.HasPrefix(options, "[") {
			rest = after
			for _, option := range strings.Fields(options[1:]) {
				if key, value, _ := strings.Cut(option, "="); strings.EqualFold(key, "signed-by") {
					src.signedBy = value
				}
			}
		}
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			continue
		}
		src.uri, src.suite, src.main = fields[0], fields[1], slices.Contains(fields[2:], "main")
		all = append(all, src)
	}
	return all
}

// stanzas reads sources of the form of deb822(5).
func stanzas(text string) (all []source) {
	fields := make(map[string]string)
	key := ""
	end := func() {
		all = append(all, expand(fields)...)
		clear(fields)
		key = ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		name, value, named := strings.Cut(line, ":")
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "":
			end()
		case line[0] == ' ' || line[0] == '\t':
			fields[key] += "\n" + line
		case named:
			key = strings.ToLower(name)
			fields[key] = value
		}
		if len(all) > mostExpanded {
			return all
		}
	}
	end()
	return all
}

// expand returns a source for each URI and suite of a stanza.
func expand(fields map[string]string) (all []source) {
	if !slices.Contains(strings.Fields(fields["types"]), "deb") {
		return nil
	}
	key := strings.TrimSpace(fields["signed-by"])
	src := source{signedBy: key, main: slices.Contains(strings.Fields(fields["components"]), "main")}
	if strings.Contains(key, "\n") || strings.HasPrefix(key, "-----") {
		src.inline, src.signedBy = true, ""
	}
	switch strings.ToLower(strings.TrimSpace(fields["enabled"])) {
	case "no", "false", "off", "0", "without", "disable":
		src.disabled = true
	}
	for _, src.uri = range strings.Fields(fields["uris"]) {
		for _, src.suite = range strings.Fields(fields["suites"]) {
			if all = append(all, src); len(all) > mostExpanded {
				return all
			}
		}
	}
	return all
}

// listOf is what the names of the lists of a suite's packages have.
func listOf(suite string) string { return "_dists_" + strings.ReplaceAll(suite, "/", "_") + "_" }

// lists are the files in which apt has noted the packages of archives, those whose name has a part. They may be
// compressed.
func (s *System) lists(part string) (paths []string) {
	folder := filepath.Join(s.Root, aptLists)
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		if strings.Contains(e.Name(), part) && strings.Contains(e.Name(), "_Packages") {
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}
	return paths
}

// known leaves those packages that the archive of a suite has, as far as its lists can be read: with one that it does
// not have, apt installs none. Packages of the main archive stay.
func (s *System) known(names []string, suite string) []string {
	found := make(map[string]bool)
	deadline := time.Now().Add(mostTime)
	lists := s.lists(listOf(suite))
	for _, path := range lists {
		if !strings.HasSuffix(path, "_Packages") {
			return names // compressed
		}
		if !packagesIn(path, names, found, deadline) {
			return names
		}
	}
	if len(lists) == 0 {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return strings.HasSuffix(name, dbgsymSuffix) && !found[name]
	})
}

// packagesIn finds names in a list of packages. It reports whether all of the list was read.
func packagesIn(path string, names []string, found map[string]bool, deadline time.Time) bool {
	file, err := openRegular(path)
	if err != nil {
		return false
	}
	defer file.Close()
	const maxPackages = 256 << 20
	lines := bufio.NewReaderSize(io.LimitReader(file, maxPackages), 256<<10)
	for n := 0; ; n++ {
		line, err := lines.ReadSlice('\n')
		if name, ok := bytes.CutPrefix(line, []byte("Package: ")); ok {
			if i := slices.Index(names, string(bytes.TrimSpace(name))); i >= 0 {
				found[names[i]] = true
			}
		}
		switch {
		case err == io.EOF:
			return true
		case err != nil && err != bufio.ErrBufferFull, n%(1<<12) == 0 && time.Now().After(deadline):
			return false
		}
	}
}
