package export

import (
	"errors"
	"io"

	"unspool/capture/profile"
)

var errSoon = errors.New("in the making")

func writePprof(j *job, w io.Writer) (*profile.Profile, error)      { return nil, errSoon }
func writeFirefox(j *job, w io.Writer) (*profile.Profile, error)    { return nil, errSoon }
func writeSpeedscope(j *job, w io.Writer) (*profile.Profile, error) { return nil, errSoon }
func writeFlamegraph(j *job, w io.Writer) (*profile.Profile, error) { return nil, errSoon }
func writeFolded(j *job, w io.Writer) (*profile.Profile, error)     { return nil, errSoon }
func writeSyscap(j *job, w io.Writer) (*profile.Profile, error)     { return nil, errSoon }
