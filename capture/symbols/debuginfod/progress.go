package debuginfod

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// StatusLine returns an Options.Progress that keeps one line of a terminal up to date, and erases it at the end.
func StatusLine(w io.Writer) func(url string, done, total int64) {
	var width int
	var current string
	var began time.Time
	return func(url string, done, total int64) {
		if url != current {
			current, began = url, time.Now()
		}
		if url == "" {
			if width > 0 {
				fmt.Fprintf(w, "\r%*s\r", width, "")
				width = 0
			}
			return
		}
		text := status(url, done, total, time.Since(began))
		fmt.Fprintf(w, "\r%-*s", width, text)
		width = len(text)
	}
}

// status is short enough for a line of 80 columns: of the URL the server is shown, and how the build ID begins.
func status(url string, done, total int64, since time.Duration) string {
	const mib = 1 << 20
	name := url
	if i := strings.Index(url, "/buildid/"); i >= 0 {
		host := url[strings.Index(url, "://")+1:]
		host = strings.TrimLeft(host[:strings.Index(host, "/buildid/")], "/")
		id, kind, _ := strings.Cut(url[i+len("/buildid/"):], "/")
		name = fmt.Sprintf("%s %.8s from %.30s", kind, id, host)
	}
	switch {
	case done == 0:
		return fmt.Sprintf("%s: waiting for %d s", name, since/time.Second)
	case total < 0:
		return fmt.Sprintf("%s: %.1f MiB", name, float64(done)/mib)
	default:
		return fmt.Sprintf("%s: %.1f of %.1f MiB", name, float64(done)/mib, float64(total)/mib)
	}
}
