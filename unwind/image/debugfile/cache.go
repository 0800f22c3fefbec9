package debugfile

import (
	"bufio"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Cached gives the places of a build in perf's build-ID cache, usually ~/.debug:
// a link to a directory with the file in it ("elf", "debug", "vdso", "kallsyms"),
// or, up to perf 4.8, to the file (build_id_cache__linkname and
// dso__build_id_filename in tools/perf/util/build-id.c).
func Cached(cache string, buildID []byte, name string) []string {
	digits := hex.EncodeToString(buildID)
	if cache == "" || len(digits) < 4 {
		return nil
	}
	link := filepath.Join(cache, ".build-id", digits[:2], digits[2:])
	return []string{filepath.Join(link, name), link}
}

// Cache is where perf's build-ID cache is (perf-config, "buildid.dir"), by default ~/.debug; "" if that is not known.
func Cache() string {
	home, err := os.UserHomeDir()
	configs := []string{filepath.Join(home, ".perfconfig"), "/etc/perfconfig"}
	if err != nil {
		configs = configs[1:]
	}
	if only := os.Getenv("PERF_CONFIG"); only != "" {
		configs = []string{only}
	}
	for _, name := range configs {
		if dir := configured(name); dir != "" {
			return dir
		}
	}
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".debug")
}

// configured is the absolute path that a file of perf's settings has for buildid.dir, "" if it has none.
func configured(name string) (dir string) {
	const most = 64 << 10
	st, err := os.Stat(name)
	if err != nil || !st.Mode().IsRegular() {
		return ""
	}
	file, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer file.Close()
	section := ""
	for lines := bufio.NewScanner(io.LimitReader(file, most)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if name, ok := strings.CutPrefix(line, "["); ok {
			section, _, _ = strings.Cut(name, "]")
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		value = strings.TrimSpace(value)
		if section == "buildid" && strings.TrimSpace(key) == "dir" && filepath.IsAbs(value) {
			dir = value
		}
	}
	return dir
}
