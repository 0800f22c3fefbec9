package perfring

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// eventNames are perf's names of the generalized events: enum perf_hw_id and enum perf_sw_ids.
var eventNames = map[string]struct {
	typ    uint32
	config uint64
}{
	"cycles":                  {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	"cpu-cycles":              {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	"instructions":            {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
	"cache-references":        {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_REFERENCES},
	"cache-misses":            {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES},
	"branches":                {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
	"branch-instructions":     {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
	"branch-misses":           {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BRANCH_MISSES},
	"bus-cycles":              {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BUS_CYCLES},
	"stalled-cycles-frontend": {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_STALLED_CYCLES_FRONTEND},
	"idle-cycles-frontend":    {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_STALLED_CYCLES_FRONTEND},
	"stalled-cycles-backend":  {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_STALLED_CYCLES_BACKEND},
	"idle-cycles-backend":     {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_STALLED_CYCLES_BACKEND},
	"ref-cycles":              {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_REF_CPU_CYCLES},

	"cpu-clock":        {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK},
	"task-clock":       {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK},
	"page-faults":      {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS},
	"faults":           {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS},
	"context-switches": {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
	"cs":               {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
	"cpu-migrations":   {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_MIGRATIONS},
	"migrations":       {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_MIGRATIONS},
	"minor-faults":     {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS_MIN},
	"major-faults":     {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ},
	"alignment-faults": {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_ALIGNMENT_FAULTS},
	"emulation-faults": {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_EMULATION_FAULTS},
	"dummy":            {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_DUMMY},
	"bpf-output":       {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_BPF_OUTPUT},
	"cgroup-switches":  {unix.PERF_TYPE_SOFTWARE, 11}, // PERF_COUNT_SW_CGROUP_SWITCHES
}

// The names of the parts of cache events, by the numbers of enum perf_hw_cache_id, _op_id and
// _op_result_id; perf prints the first name of each list.
var (
	cacheNames = [][]string{
		{"L1-dcache", "l1-d", "l1d", "L1-data"},
		{"L1-icache", "l1-i", "l1i", "L1-instruction"},
		{"LLC", "L2"},
		{"dTLB", "d-tlb", "Data-TLB"},
		{"iTLB", "i-tlb", "Instruction-TLB"},
		{"branch", "branches", "bpu", "btb", "bpc"},
		{"node"},
	}
	cacheOps = [][]string{
		{"load", "loads", "read"},
		{"store", "stores", "write"},
		{"prefetch", "prefetches", "speculative-read", "speculative-load"},
	}
	cacheResults = [][]string{
		{"refs", "reference", "ops", "access"},
		{"misses", "miss"},
	}
)

// cacheEvent reads CACHE[-OP][-RESULT]. Without an operation it is load, without a result it is all
// accesses.
func cacheEvent(name string) (config uint64, ok bool) {
	cache, rest, ok := cutName(name, cacheNames)
	if !ok || rest == "" {
		return 0, false
	}
	op, rest, hasOp := cutName(rest, cacheOps)
	result, rest, hasResult := cutName(rest, cacheResults)
	if rest != "" || !hasOp && !hasResult {
		return 0, false
	}
	return uint64(cache | op<<8 | result<<16), true
}

// cutName finds the longest name at the beginning of s that ends at a dash or at the end of s. It
// returns the number of the name and the text behind the dash.
func cutName(s string, names [][]string) (number int, rest string, ok bool) {
	best := -1
	for i, list := range names {
		for _, n := range list {
			if len(n) > best && len(s) >= len(n) && strings.EqualFold(s[:len(n)], n) &&
				(len(s) == len(n) || s[len(n)] == '-') {
				number, best = i, len(n)
			}
		}
	}
	if best < 0 {
		return 0, s, false
	}
	return number, strings.TrimPrefix(s[best:], "-"), true
}

// knownEventNames lists what lookupEvent knows, sorted.
func knownEventNames() []string {
	var names []string
	for n := range eventNames {
		names = append(names, n)
	}
	for _, c := range cacheNames {
		for _, op := range []string{"load", "store", "prefetch"} {
			names = append(names, c[0]+"-"+op+"-misses", c[0]+"-"+op+pluralOf(op))
		}
	}
	slices.Sort(names)
	return names
}

func pluralOf(op string) string {
	if op == "prefetch" {
		return "es"
	}
	return "s"
}

// didYouMean returns ", did you mean …?" with up to three of the names that are close to name, or "".
func didYouMean(name string, names []string) string {
	if len(name) > 64 {
		return ""
	}
	limit := max(1, min(3, len(name)/3))
	var near [4][]string
	for _, n := range names {
		if d := distance(name, n); d <= limit {
			near[d] = append(near[d], n)
		} else if len(name) >= 4 && strings.Contains(n, name) {
			near[3] = append(near[3], n)
		}
	}
	best := slices.Concat(near[0], near[1], near[2], near[3])
	if len(best) == 0 {
		return ""
	}
	return ", did you mean " + strings.Join(best[:min(3, len(best))], " or ") + "?"
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
