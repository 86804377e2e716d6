package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"millwright/decide/phrase"
	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

// describeCloud returns what the cloud does wrong, one line each.
func describeCloud(b admin.Behaviour, faults []admin.Fault, instanceCount int, now time.Time) (string, error) {
	lines := describeLatencies(b.ExtraLatency)
	for _, key := range slices.Sorted(maps.Keys(b.Quotas)) {
		if key == totalQuotaKey {
			lines = append(lines, fmt.Sprintf("quota: %s at a time; %d now", phrase.CountText(b.Quotas[key], "instance"),
				instanceCount))
		} else {
			lines = append(lines, fmt.Sprintf("quota: %s of %s at a time", phrase.CountText(b.Quotas[key], "instance"), key))
		}
	}
	for _, f := range faults {
		lines = append(lines, describeFault(f, now))
	}
	for _, op := range slices.Sorted(maps.Keys(b.HangPoints)) {
		when := "and have no effect"
		if b.HangPoints[op] == admin.HangAfterEffect {
			when = "after their effect"
		}
		lines = append(lines, fmt.Sprintf("hang: %s calls get no answer, %s", op, when))
	}
	rest, err := describeOtherSettings(b)
	if err != nil {
		return "", err
	}
	if lines = append(lines, rest...); len(lines) == 0 {
		return "the cloud behaves well\n", nil
	}
	return "the cloud misbehaves; `devstack cloud --reset` ends it:\n  " + strings.Join(lines, "\n  ") + "\n", nil
}

func describeLatencies(extra admin.Latencies) []string {
	var lines []string
	for _, l := range []struct {
		format string
		value  virtual.Duration
	}{
		{"latency: create calls take %s longer", extra.Create},
		{"latency: instances are deleted %s later", extra.Delete},
		{"nodes late: Nodes join %s later", extra.Boot},
	} {
		if l.value > 0 {
			lines = append(lines, fmt.Sprintf(l.format, phrase.DurationText(time.Duration(l.value))))
		}
	}
	return lines
}

func describeFault(f admin.Fault, now time.Time) string {
	text := fmt.Sprintf("refuse: %s calls fail with %s", f.Operation, f.Code)
	text += phrase.TextIf(f.Machine != "", ", only of machine %s", f.Machine)
	text += phrase.TextIf(f.Class != "", ", only of class %s", f.Class)
	text += phrase.TextIf(f.FailsAfterEffect, ", after their effect")
	text += phrase.TextIf(f.EveryNthCall > 1, ", one of %d", f.EveryNthCall)
	text += phrase.TextIf(f.Probability > 0, ", with probability %v", f.Probability)
	text += phrase.TextIf(f.MaxFailures > 0, ", %s more", phrase.CountText(f.MaxFailures, "time"))
	return text + phrase.TextIf(f.Lifetime > 0, ", until %s", phrase.ClockText(now.Add(time.Duration(f.Lifetime)), now))
}

// describeOtherSettings returns the settings that are not the default and have no flag, in the form of the admin API.
func describeOtherSettings(b admin.Behaviour) ([]string, error) {
	b.ExtraLatency, b.Quotas, b.HangPoints = admin.Latencies{}, nil, nil
	is, err := jsonFields(b)
	if err != nil {
		return nil, err
	}
	usual, err := jsonFields(admin.DefaultBehaviour())
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if !reflect.DeepEqual(is[name], usual[name]) {
			lines = append(lines, fmt.Sprintf("other: %s %v", name, is[name]))
		}
	}
	return lines, nil
}

func jsonFields(b admin.Behaviour) (map[string]any, error) {
	encoded, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode behaviour: %w", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return nil, fmt.Errorf("decode behaviour: %w", err)
	}
	return fields, nil
}

// describeInstances returns the table of the instances.
func describeInstances(instances []admin.Instance, now time.Time) string {
	if len(instances) == 0 {
		return "no instances\n"
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "ID\tMACHINE\tSTATE\tNODE\tCLASS\tZONE\tTYPE\tAGE")
	for _, i := range instances {
		node := "not joined"
		if !i.RegisteredAt.IsZero() {
			node = i.NodeName
		}
		_, _ = fmt.Fprintln(table, strings.Join([]string{
			i.ID, i.Tags.MachineName, i.State, node, i.Tags.Class, i.Zone, i.InstanceType, phrase.AgeText(now.Sub(i.Created)),
		}, "\t"))
	}
	_ = table.Flush() // a strings.Builder returns no error
	return text.String()
}
