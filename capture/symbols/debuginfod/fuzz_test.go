package debuginfod

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// answers is a server that sends one answer to all that it is asked.
type answers struct {
	status int
	header http.Header
	body   []byte
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: a.header.Clone(),
		Body:          io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: -1, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, nil
}

// FuzzAnswer takes what a server sends: nothing is kept that is not the file that was asked for.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "Last-Modified: Mon, 03 Feb 2020 04:05:06 GMT\nContent-Length: 5", content)
	f.Add(200, "X-DEBUGINFOD-SIZE: 99999999999999999999\nLocation: http://elsewhere/", content[:40])
	f.Add(302, "Location: file:///etc/passwd", []byte{})
	f.Add(404, "Retry-After: -1", elfFile(another))
	f.Fuzz(inputs.Many(f, func(t *testing.T, status int, header string, body []byte) {
		defer costs.For(len(header) + len(body)).Check(t)()
		a := &answers{status: 200 + int(uint(status)%400), header: http.Header{}, body: body}
		for line := range strings.Lines(header) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				a.header.Add(key, value)
			}
		}
		c := client(t.TempDir(), "http://server")
		c.http.Transport = a
		file, err := c.Find(buildID, Debuginfo)
		if err != nil {
			return
		}
		defer file.Close()
		if got, err := io.ReadAll(file); err != nil || !bytes.Contains(got, buildID) || !bytes.Equal(got, body) {
			t.Errorf("%d bytes of %d were kept: %v", len(got), len(body), err)
		}
	}))
}
