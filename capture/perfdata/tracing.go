package perfdata

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// tracefs is where the tracing file system is mounted, in the order of preference.
var tracefs = []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}

// tracingData encodes the TRACING_DATA feature: the layout of the raw data of tracepoints, in the
// format of trace-cmd (tools/perf/util/trace-event-info.c). It is nil without tracepoints.
func tracingData(events []perfring.Attr) ([]byte, error) {
	points := map[string][]string{} // names by group
	for _, e := range events {
		if e.PerfEventAttr.Type != unix.PERF_TYPE_TRACEPOINT {
			continue
		}
		group, name, err := tracepoint(e)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(points[group], name) {
			points[group] = append(points[group], name)
		}
	}
	if len(points) == 0 {
		return nil, nil
	}
	b := []byte("\x17\x08\x44tracing0.6\x00")
	b = append(b, 0, 8) // little-endian, sizeof(long)
	b = le.AppendUint32(b, uint32(os.Getpagesize()))

	var err error
	// part appends the length of a file of tracefs, as a number of so many bits, and the file.
	part := func(bits int, path ...string) {
		if err != nil {
			return
		}
		var data []byte
		if data, err = readTracefs(filepath.Join(path...)); err != nil {
			return
		}
		if bits == 64 {
			b = le.AppendUint64(b, uint64(len(data)))
		} else {
			b = le.AppendUint32(b, uint32(len(data)))
		}
		b = append(b, data...)
	}
	b = append(b, "header_page\x00"...)
	part(64, "events/header_page")
	b = append(b, "header_event\x00"...)
	part(64, "events/header_event")
	b = le.AppendUint32(b, 0) // formats of the function tracer
	b = le.AppendUint32(b, uint32(len(points)))
	for _, group := range slices.Sorted(maps.Keys(points)) {
		b = append(append(b, group...), 0)
		b = le.AppendUint32(b, uint32(len(points[group])))
		for _, name := range points[group] {
			part(64, "events", group, name, "format")
		}
	}
	b = le.AppendUint32(b, 0) // kallsyms: perf has its own
	part(32, "printk_formats")
	part(64, "saved_cmdlines")
	if err != nil {
		return nil, fmt.Errorf("formats of the tracepoints: %w", err)
	}
	return b, nil
}

// tracepoint returns the group and the name of e, a tracepoint: those in the event's name if they have the
// right number, or else those of the tracepoint that has the number.
func tracepoint(e perfring.Attr) (group, name string, err error) {
	id := strconv.FormatUint(e.PerfEventAttr.Config, 10)
	if part := strings.Split(e.Name, ":"); len(part) >= 2 && !strings.Contains(e.Name, "/") {
		if text, err := readTracefs(filepath.Join("events", part[0], part[1], "id")); err == nil &&
			string(bytes.TrimSpace(text)) == id {
			return part[0], part[1], nil
		}
	}
	for _, root := range tracefs {
		files, _ := filepath.Glob(filepath.Join(root, "events/*/*/id"))
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && string(bytes.TrimSpace(text)) == id {
				dir := filepath.Dir(file)
				return filepath.Base(filepath.Dir(dir)), filepath.Base(dir), nil
			}
		}
	}
	return "", "", fmt.Errorf("tracepoint %s (number %s) is not in %s/events; "+
		"mount it with: mount -t tracefs nodev %s", e.Name, id, tracefs[0], tracefs[0])
}

// readTracefs reads a file of tracefs.
func readTracefs(path string) (data []byte, err error) {
	for _, root := range tracefs {
		if data, err = os.ReadFile(filepath.Join(root, path)); err == nil {
			return data, nil
		}
	}
	return nil, err
}
