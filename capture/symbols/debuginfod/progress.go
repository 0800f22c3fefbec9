package debuginfod

import (
	"fmt"
	"strings"
	"time"
)

// Status returns a function for Options.Progress that calls show with a line of text, and with "" at the end.
func Status(show func(text string)) func(url string, done, total int64) {
	var current string
	var began time.Time
	return func(url string, done, total int64) {
		if url != current {
			current, began = url, time.Now()
		}
		text := ""
		if url != "" {
			text = status(url, done, total, time.Since(began))
		}
		show(text)
	}
}

// status fits into 80 columns: it shows the beginning of the build ID, and only the server of the URL.
func status(url string, done, total int64, since time.Duration) string {
	const mib = 1 << 20
	name := url
	if server, file, found := strings.Cut(url, "/buildid/"); found {
		_, host, _ := strings.Cut(server, "://")
		id, kind, _ := strings.Cut(file, "/")
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
