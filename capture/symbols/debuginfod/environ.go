package debuginfod

import (
	"bufio"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The values of elfutils' client for variables that are not set.
const (
	defaultTimeout = 90 // seconds
	defaultRetries = 2
)

// Environment returns the options in the environment; false if DEBUGINFOD_URLS names no server, so that there
// must be no Client.
func Environment() (Options, bool) {
	o := Options{
		Servers: servers(os.Getenv("DEBUGINFOD_URLS")),
		Timeout: seconds(number("DEBUGINFOD_TIMEOUT", defaultTimeout)),
		MaxTime: seconds(number("DEBUGINFOD_MAXTIME", 0)),
		MaxSize: number("DEBUGINFOD_MAXSIZE", 0),
		Retries: int(min(number("DEBUGINFOD_RETRY_LIMIT", defaultRetries), 100)),
		Header:  make(http.Header),
	}
	if len(o.Servers) == 0 {
		return Options{}, false
	}
	o.Cache = cacheFolder()
	if name := os.Getenv("DEBUGINFOD_HEADERS_FILE"); name != "" {
		readHeader(name, o.Header)
	}
	if o.MaxSize > 0 {
		o.Header.Set("X-Debuginfod-Maxsize", strconv.FormatInt(o.MaxSize, 10))
	}
	if _, set := os.LookupEnv("DEBUGINFOD_PROGRESS"); set {
		o.Progress = Status(func(text string) { fmt.Fprintf(os.Stderr, "\r\x1b[K%s", text) })
	}
	if _, set := os.LookupEnv("DEBUGINFOD_VERBOSE"); set {
		o.Log = os.Stderr
	}
	return o, true
}

// servers splits DEBUGINFOD_URLS. Words like ima:enforcing demand signatures from the servers after them.
// Only RPM packages have these; here the build ID is checked instead.
func servers(urls string) []string {
	var list []string
	for _, word := range strings.Fields(urls) {
		if !strings.HasPrefix(word, "ima:") && !slices.Contains(list, word) {
			list = append(list, word)
		}
	}
	return list
}

// number reads a variable as atol does: text that is not a number is 0.
func number(name string, unset int64) int64 {
	text, set := os.LookupEnv(name)
	if !set {
		return unset
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n
}

// seconds is a duration of n seconds, 0 if n is negative.
func seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt64/int64(time.Second))) * time.Second
}

// cacheFolder returns the folder of the cache: the one that elfutils has used since 0.178, if it exists, or
// else the one that it uses now.
func cacheFolder() string {
	if folder := os.Getenv("DEBUGINFOD_CACHE_PATH"); folder != "" {
		return folder
	}
	home := os.Getenv("HOME")
	if home == "" {
		home = "/"
	}
	old := filepath.Join(home, ".debuginfod_client_cache")
	if _, err := os.Stat(old); err == nil {
		return old
	}
	if folder := os.Getenv("XDG_CACHE_HOME"); folder != "" {
		return filepath.Join(folder, "debuginfod_client")
	}
	return filepath.Join(home, ".cache", "debuginfod_client")
}

// readHeader adds the lines "Name: value" of a file; other lines are left out.
func readHeader(name string, header http.Header) {
	file, err := os.Open(name)
	if err != nil {
		return
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		if isToken(name) && value != "" && !strings.ContainsFunc(value, unicode.IsControl) {
			header.Add(name, value)
		}
	}
}

// isToken reports whether a text can be the name of a header field (RFC 9110, 5.6.2).
func isToken(text string) bool {
	for _, c := range []byte(text) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return text != ""
}
