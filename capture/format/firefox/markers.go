package firefox

import "strconv"

// instant is the phase of a marker that has no duration.
const instant = "0"

// markerSchema is what the fields of our markers are and where they are shown.
const markerSchema = `[` +
	`{"name":"Lost","tooltipLabel":"Lost samples","tableLabel":"{marker.data.count} lost",` +
	`"chartLabel":"{marker.data.count} lost",` +
	`"description":"The kernel had no room for these records, or they were lost on the way. ` +
	`They were lost before this time.",` +
	`"display":["marker-chart","marker-table","timeline-overview"],` +
	`"fields":[{"key":"count","label":"Records","format":"integer"},` +
	`{"key":"cpu","label":"CPU","format":"integer"}]},` +
	`{"name":"Throttled","description":"The kernel held the event back, because sampling took too long.",` +
	`"display":["marker-chart","marker-table","timeline-overview"],` +
	`"fields":[{"key":"cpu","label":"CPU","format":"integer"}]},` +
	`{"name":"Event","description":"A sample of another event than the one whose samples make the call tree.",` +
	`"display":["marker-chart","marker-table"],` +
	`"fields":[{"key":"period","label":"Period","format":"integer"},` +
	`{"key":"cpu","label":"CPU","format":"integer"}]}]`

// writeEvent writes a sample of another event than the main one.
func (w *writer) writeEvent(e entry) {
	w.Open('{')
	w.Field("type", "Event")
	w.Key("period")
	w.Int(int64(min(e.period, 1<<53)))
	w.writeCPU(e.cpu)
	if e.stack >= 0 {
		w.Key("cause")
		w.Open('{')
		w.Key("time")
		w.milliseconds(e.time)
		w.Key("stack")
		w.index(e.stack)
		w.Close()
	}
	w.Close()
}

func (w *writer) writeCPU(cpu int32) {
	if cpu >= 0 {
		w.Key("cpu")
		w.index(cpu)
	}
}

// writeGaps writes the thread that has a marker for each loss.
func (w *writer) writeGaps() {
	losses := w.p.Losses
	n := len(losses)
	w.Open('{')
	w.describe("gaps", "gaps", "[gaps]", "[gaps]", true)
	w.writeTimes(0, 0, 0, 0)

	w.table("samples", 0)
	w.Field("weightType", "samples")
	w.same("stack", 0, "")
	w.same("timeDeltas", 0, "")
	w.Key("weight")
	w.null()
	w.Close()

	w.table("markers", n)
	w.column("name", n, func(i int) {
		if losses[i].Count == 0 {
			w.index(w.held)
			return
		}
		w.index(w.lost)
	})
	w.column("startTime", n, func(i int) { w.milliseconds(w.since(losses[i].Time)) })
	w.same("endTime", n, "null")
	w.same("phase", n, instant)
	w.same("category", n, strconv.Itoa(other))
	w.column("data", n, func(i int) {
		w.Open('{')
		w.Key("type")
		if losses[i].Count == 0 {
			w.Value("Throttled")
		} else {
			w.Value("Lost")
			w.Key("count")
			w.Int(int64(min(losses[i].Count, 1<<53)))
		}
		w.writeCPU(losses[i].CPU)
		w.Close()
	})
	w.Close()
	w.Close()
}
