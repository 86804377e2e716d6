// Package bench contains the results of a benchmark. The package writes and reads results as JSON, prints results as a
// table, and prints the ratios of two results. The loads are in test/integration/bench.
package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report has the results of one run of the benchmarks.
type Report struct {
	Commit   string       `json:"commit,omitempty"` // commit of the code; empty if unknown
	Time     time.Time    `json:"time"`             // time at which the report was made
	CPUCount int          `json:"cpus"`             // number of processors of the computer
	Loads    []LoadResult `json:"loads"`            // loads in the order in which they ran
}

// LoadResult has the figures of one load.
type LoadResult struct {
	Name         string   `json:"name"`
	MachineCount int      `json:"machines"` // number of machines by which the figures per machine are divided; never zero
	Seconds      float64  `json:"seconds"`  // time from the first request of the load until its end
	Targets      []Target `json:"bars,omitempty"`
	IdealSeconds float64  `json:"ideal,omitempty"` // duration of the critical path in seconds; zero if unknown
	// number of requests of worker and bridge to the API server, by "user verb resource"
	RequestCounts map[string]int     `json:"requests"`
	CPUSeconds    map[string]float64 `json:"cpu"` // seconds of processor time, by process of the stack
	// number of Temporal events per machine; zero if they were not counted
	EventsPerMachine float64 `json:"events,omitempty"`
	// number of events in the histories of the machines' runs, by type of event
	EventCounts map[string]int `json:"kept,omitempty"`
	Intervals   []Interval     `json:"hops,omitempty"`
	// resident memory at the end of the load, in MiB, by process of the stack
	MemoryMiB map[string]float64 `json:"memory,omitempty"`
	// size of the largest payload in bytes, by event and type; empty if payloads were not measured
	MaxPayloadBytes map[string]int `json:"payloads,omitempty"`
}

// Target is a target value for one figure of a load.
type Target struct {
	Figure string  `json:"of"` // name of the figure: Seconds, Requests, Minute or Ratio
	Value  float64 `json:"aim"`
}

// Interval is the time in seconds between two events. The times of the events are from a watch of the API server or
// from Temporal's histories.
type Interval struct {
	Name          string  `json:"name"`
	MedianSeconds float64 `json:"median"`
	P90Seconds    float64 `json:"ninety"` // 90th percentile
	P99Seconds    float64 `json:"most"`   // 99th percentile
	SampleCount   int     `json:"times"`
}

// The names of figures that can have a Target.
const (
	FigureSeconds            = "seconds"
	FigureRequestsPerMachine = "requests a machine"
	FigureRatioToIdeal       = "x critical path"
	FigureRequestsPerMinute  = "requests a minute"
)

// TotalRequests returns the number of requests of a load.
func (l LoadResult) TotalRequests() int {
	n := 0
	for _, of := range l.RequestCounts {
		n += of
	}
	return n
}

// RequestsPerMachine returns the number of requests per machine.
func (l LoadResult) RequestsPerMachine() float64 {
	return float64(l.TotalRequests()) / float64(l.MachineCount)
}

// RequestsPerMinute returns the number of requests per minute; 0 for a load that took no time.
func (l LoadResult) RequestsPerMinute() float64 {
	if l.Seconds == 0 {
		return 0
	}
	return float64(l.TotalRequests()) / l.Seconds * 60
}

// RatioToIdeal returns the time of the load divided by the time of the critical path; 0 if the time of the critical
// path is unknown.
func (l LoadResult) RatioToIdeal() float64 {
	if l.IdealSeconds == 0 {
		return 0
	}
	return l.Seconds / l.IdealSeconds
}

// TotalCPUSeconds returns the seconds of processor time of all processes together.
func (l LoadResult) TotalCPUSeconds() float64 {
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(l.CPUSeconds)) { // sorted, so that rounding gives the same sum each time
		sum += l.CPUSeconds[name]
	}
	return sum
}

// figureValue returns the value of the figure that a Target names.
func (l LoadResult) figureValue(of string) float64 {
	switch of {
	case FigureRequestsPerMachine:
		return l.RequestsPerMachine()
	case FigureRatioToIdeal:
		return l.RatioToIdeal()
	case FigureRequestsPerMinute:
		return l.RequestsPerMinute()
	default:
		return l.Seconds
	}
}

// FormatTable returns the report as text: a line for each load, and then the requests and the processor time of each
// load in detail.
func (r Report) FormatTable() string {
	var text strings.Builder
	rows := [][]string{
		{
			"LOAD",
			"SECONDS",
			"REQUESTS A MACHINE",
			"REQUESTS A MINUTE",
			"CPU SECONDS",
			"EVENTS A MACHINE",
			"X CRITICAL PATH",
			"FIGURE/BAR",
		},
	}
	for _, l := range r.Loads {
		var bars []string
		for _, b := range l.Targets {
			bars = append(bars, fmt.Sprintf("%.2f of %s %s", l.figureValue(b.Figure)/b.Value, formatNumber(b.Value), b.Figure))
		}
		rows = append(rows, []string{
			l.Name,
			fmt.Sprintf("%.1f", l.Seconds),
			fmt.Sprintf("%.1f", l.RequestsPerMachine()),
			fmt.Sprintf("%.0f", l.RequestsPerMinute()),
			fmt.Sprintf("%.1f", l.TotalCPUSeconds()),
			formatOrDash(l.EventsPerMachine, "%.1f"),
			formatOrDash(l.RatioToIdeal(), "%.2f"),
			cmp.Or(strings.Join(bars, "; "), "-"),
		})
	}
	text.WriteString(alignColumns(rows))
	for _, l := range r.Loads {
		fmt.Fprintf(&text, "\n%s\n", l.Name)
		rows := [][]string{}
		for _, what := range keysByValue(l.RequestCounts) {
			rows = append(
				rows,
				[]string{
					"  " + what,
					fmt.Sprint(l.RequestCounts[what]),
					fmt.Sprintf("%.2f a machine", float64(l.RequestCounts[what])/float64(l.MachineCount)),
				},
			)
		}
		for _, what := range keysByValue(l.EventCounts) {
			rows = append(
				rows,
				[]string{
					"  in Temporal: " + what,
					fmt.Sprint(l.EventCounts[what]),
					fmt.Sprintf("%.2f a machine", float64(l.EventCounts[what])/float64(l.MachineCount)),
				},
			)
		}
		for _, process := range keysByValue(l.CPUSeconds) {
			if l.CPUSeconds[process] >= 0.05 {
				rows = append(rows, []string{"  CPU of " + process, fmt.Sprintf("%.1f s", l.CPUSeconds[process]), ""})
			}
		}
		for _, h := range l.Intervals {
			rows = append(
				rows,
				[]string{
					"  " + h.Name,
					fmt.Sprintf("median %.2f s", h.MedianSeconds),
					fmt.Sprintf("nine of ten %.2f s, 99 of 100 %.2f s, %d times", h.P90Seconds, h.P99Seconds, h.SampleCount),
				},
			)
		}
		for _, process := range keysByValue(l.MemoryMiB) {
			rows = append(rows, []string{"  memory of " + process, fmt.Sprintf("%.0f MiB", l.MemoryMiB[process]), ""})
		}
		for _, kind := range keysByValue(l.MaxPayloadBytes) {
			rows = append(rows, []string{"  largest payload of " + kind, fmt.Sprintf("%d bytes", l.MaxPayloadBytes[kind]), ""})
		}
		text.WriteString(alignColumns(rows))
	}
	return text.String()
}

// CompareWithReport divides the figures of r by the figures of before, and returns one line for each load that is in
// both reports. A ratio below 1 means faster or fewer.
func (r Report) CompareWithReport(before Report) string {
	rows := [][]string{{"LOAD", "SECONDS", "REQUESTS", "CPU", "EVENTS"}}
	for _, now := range r.Loads {
		i := slices.IndexFunc(before.Loads, func(l LoadResult) bool { return l.Name == now.Name })
		if i < 0 {
			continue
		}
		was := before.Loads[i]
		rows = append(rows, []string{
			now.Name,
			formatRatio(now.Seconds, was.Seconds),
			formatRatio(now.RequestsPerMachine(), was.RequestsPerMachine()),
			formatRatio(now.TotalCPUSeconds(), was.TotalCPUSeconds()),
			formatRatio(now.EventsPerMachine, was.EventsPerMachine),
		})
	}
	if len(rows) == 1 {
		return "The two reports have no load in common.\n"
	}
	return fmt.Sprintf(
		"As multiples of the report of %s%s:\n",
		before.Time.UTC().Format(time.RFC3339),
		commitSuffix(before.Commit),
	) +
		alignColumns(rows)
}

func commitSuffix(commit string) string {
	if commit == "" {
		return ""
	}
	return " at commit " + commit
}

// Write writes the report to a file as JSON.
func (r Report) Write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// ReadReport reads a report that Write has written.
func ReadReport(file string) (Report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Report{}, fmt.Errorf("read report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return Report{}, fmt.Errorf("read report %s: %w", file, err)
	}
	return r, nil
}

// New returns a report without loads that has the current time and this computer's number of processors.
func New(commit string) Report {
	return Report{Commit: commit, Time: time.Now().UTC(), CPUCount: runtime.NumCPU()}
}

// NewInterval returns an Interval with a name from at least one measured duration. NewInterval subtracts the parameter
// less, which is the time that the cloud takes, from each duration.
func NewInterval(name string, durations []time.Duration, less time.Duration) Interval {
	list := slices.Sorted(slices.Values(durations))
	part := func(percent int) float64 { return (list[len(list)*percent/100] - less).Seconds() }
	return Interval{
		Name:          name,
		MedianSeconds: part(50),
		P90Seconds:    part(90),
		P99Seconds:    part(99),
		SampleCount:   len(list),
	}
}

// keysByValue returns the keys of a map, sorted by value, the largest value first.
func keysByValue[V cmp.Ordered](m map[string]V) []string {
	return slices.SortedFunc(
		maps.Keys(m),
		func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), strings.Compare(a, b)) },
	)
}

func formatRatio(now, was float64) string {
	if was == 0 || now == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", now/was)
}

func formatOrDash(n float64, format string) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf(format, n)
}

// formatNumber returns a number as text, without superfluous zeros.
func formatNumber(n float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", n), "0"), ".")
}

func alignColumns(rows [][]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t")) // Flush returns the errors of Fprintln
	}
	_ = w.Flush() // a strings.Builder returns no errors
	return text.String()
}
