package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"unspool/capture/output/human"
	"unspool/capture/perfdata"
)

// pieces lists the files that a recording was written as, if it is not there itself. There is nothing to report then,
// so that is an error, too. For a recording that is there, and where there are none, it does nothing.
func (f *reportFlags) pieces(path string, pages *pagerProcess) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	files := perfdata.PieceNames(path)
	if len(files) == 0 || f.json || f.http != "" {
		return nil
	}
	var list bytes.Buffer
	for _, file := range files {
		piece := perfdata.ReadPiece(path, file)
		fmt.Fprintf(&list, "%s  %s\n", human.Clean(file), human.Clean(pieceInWords(&piece)))
	}
	err := fmt.Errorf("%s is not there, as it was written as %s: 'unspool report FILE' shows one", quoted(path),
		human.Plural(uint64(len(files)), "file"))
	if pages != nil {
		return errors.Join(pages.show(os.Stdout, list.Bytes()), err)
	}
	_, werr := os.Stdout.Write(list.Bytes())
	return errors.Join(werr, err)
}

// pieceInWords returns when the samples of a file were taken, as far as it says so.
func pieceInWords(p *perfdata.DatedFile) string {
	switch {
	case p.Err != nil:
		return inWords(p.Err)
	case !p.Whole:
		return "from " + human.When(p.Dated) + " on: not complete, as it is being written or was cut off"
	case !p.First.IsZero():
		return human.Span(p.First, p.Last) + ", " + human.Duration(p.Duration)
	case p.Duration > 0:
		return human.Duration(p.Duration) + ", named at " + human.When(p.Dated)
	}
	return "no samples, named at " + human.When(p.Dated)
}

// piecesInWords says of a file that is not there that it was written as several, "" if it was not.
func piecesInWords(path string) string {
	files := perfdata.PieceNames(path)
	if len(files) == 0 {
		return ""
	}
	return fmt.Sprintf("; it was written as %s, the last of which is %s: 'unspool report %s' lists them",
		human.Plural(uint64(len(files)), "file"), quoted(files[len(files)-1]), path)
}
