// Package shard reads which shard of an installation serves each namespace. An installation with one shard has no
// record of shards.
package shard

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// RecordName is the name of the ConfigMap, in the namespace of the Leases, that records the shards of an installation.
// Each key except countKey is a namespace, and its value is the number of the namespace's shard.
const RecordName = "millwright-shards"

// countKey is the key of the number of shards. No namespace has this name, because names of namespaces contain no dot.
const countKey = "installation.shards"

// MaxCount is the maximum number of shards. Source: each shard has its own pollers in each process that serves it, and
// hundreds of namespaces fit into one shard.
const MaxCount = 64

// Table is the record of the shards. The zero Table records nothing.
type Table struct {
	Count  int // number of shards; zero: not recorded
	shards map[string]int
}

// ParseTable reads a record. ParseTable returns an error if a value is not the number of a shard; the Table then has the
// other namespaces. A nil ConfigMap records nothing.
func ParseTable(record *corev1.ConfigMap) (t Table, err error) {
	t.shards = map[string]int{}
	if record == nil {
		return t, nil
	}
	if text, found := record.Data[countKey]; found {
		if t.Count, err = parseNumber(text, 1, MaxCount); err != nil {
			return t, fmt.Errorf("ConfigMap %s, key %s: %w", RecordName, countKey, err)
		}
	}
	var bad []string
	for namespace, text := range record.Data {
		if namespace == countKey {
			continue
		}
		number, err := parseNumber(text, 0, MaxCount-1)
		if err != nil {
			bad = append(bad, namespace)
			continue
		}
		t.shards[namespace] = number
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		err = fmt.Errorf("ConfigMap %s: no number of a shard for the namespaces %s", RecordName, strings.Join(bad, ", "))
	}
	return t, err
}

func parseNumber(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is no number from %d to %d", text, least, most)
	}
	return n, nil
}

// Of returns the shard of a namespace. recorded is false if the record has no shard for the namespace.
func (t Table) Of(namespace string) (number int, recorded bool) {
	number, recorded = t.shards[namespace]
	return number, recorded
}

// Namespaces returns the namespaces of a shard, sorted.
func (t Table) Namespaces(number int) (list []string) {
	for namespace, of := range t.shards {
		if of == number {
			list = append(list, namespace)
		}
	}
	slices.Sort(list)
	return list
}

// Assign returns the data of the record in which each of the given namespaces has a shard, and whether the data differs
// from t. A namespace keeps its shard. A new namespace gets the shard with the fewest namespaces, of several the one with
// the smallest number. Namespaces that are not given are removed. The number of shards never decreases.
func (t Table) Assign(count int, namespaces []string) (data map[string]string, changed bool) {
	count = max(count, t.Count, 1)
	assigned, load := map[string]int{}, make([]int, count)
	var fresh []string
	for _, namespace := range namespaces {
		number, recorded := t.shards[namespace]
		if !recorded || number >= count {
			fresh = append(fresh, namespace)
			continue
		}
		assigned[namespace] = number
		load[number]++
	}
	slices.Sort(fresh)
	for _, namespace := range slices.Compact(fresh) {
		number := slices.Index(load, slices.Min(load))
		assigned[namespace] = number
		load[number]++
	}
	data = map[string]string{countKey: strconv.Itoa(count)}
	for namespace, number := range assigned {
		data[namespace] = strconv.Itoa(number)
	}
	return data, t.Count != count || !maps.Equal(t.shards, assigned)
}

// MovePatch returns the JSON patch of the record that moves a namespace from one shard to another. The patch fails if the
// namespace has another shard by now.
func MovePatch(namespace string, from, to int) []byte {
	return fmt.Appendf(
		nil,
		`[{"op":"test","path":"/data/%[1]s","value":"%[2]d"},{"op":"replace","path":"/data/%[1]s","value":"%[3]d"}]`,
		namespace, from, to,
	)
}
