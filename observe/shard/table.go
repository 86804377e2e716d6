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
// Each key except shardCountKey is a namespace, and its value is the number of the namespace's shard.
const RecordName = "millwright-shards"

// shardCountKey is the key of the number of shards. No namespace has this name, because names of namespaces contain no
// dot.
const shardCountKey = "installation.shards"

// MaxCount is the maximum number of shards. Source: each shard has its own pollers in each process that serves it, and
// hundreds of namespaces fit into one shard.
const MaxCount = 64

// Table is the record of the shards. The zero Table records nothing.
type Table struct {
	Count            int // number of shards; zero: not recorded
	shardByNamespace map[string]int
}

// ParseTable reads a record. ParseTable returns an error that names each value that is not the number of a shard; the
// Table then has the other namespaces. A nil ConfigMap records nothing.
func ParseTable(record *corev1.ConfigMap) (Table, error) { return Table{}.readRecord(record) }

// readRecord reads a record. What is wrong in the record keeps its value in t, and read returns an error that names it:
// a mistake in one entry moves no namespace. Without a record, or without the number of shards in a record that had
// one, all namespaces keep their shards.
func (t Table) readRecord(record *corev1.ConfigMap) (now Table, err error) {
	now.Count, now.shardByNamespace = t.Count, map[string]int{}
	if record == nil {
		if t.Count == 0 {
			return now, nil
		}
		return t, fmt.Errorf("ConfigMap %s does not exist any more: the namespaces keep their shards", RecordName)
	}
	var wrong []string
	text, found := record.Data[shardCountKey]
	switch count, err := parseIntInRange(text, 1, MaxCount); {
	case !found && t.Count > 0:
		maps.Copy(now.shardByNamespace, t.shardByNamespace)
		wrong = append(wrong, "the key "+shardCountKey+" is missing")
	case found && err != nil:
		wrong = append(wrong, fmt.Sprintf("key %s: %v", shardCountKey, err))
	case found:
		now.Count = count
	}
	most := MaxCount - 1
	if now.Count > 0 {
		most = now.Count - 1
	}
	for _, namespace := range slices.Sorted(maps.Keys(record.Data)) {
		if namespace == shardCountKey {
			continue
		}
		number, err := parseIntInRange(record.Data[namespace], 0, most)
		if err == nil {
			now.shardByNamespace[namespace] = number
			continue
		}
		wrong = append(wrong, fmt.Sprintf("namespace %s: %v", namespace, err))
		if last, recorded := t.shardByNamespace[namespace]; recorded {
			now.shardByNamespace[namespace] = last
		}
	}
	if len(wrong) > 0 {
		return now, fmt.Errorf(
			"ConfigMap %s has wrong values, which have no effect: %s", RecordName, strings.Join(wrong, "; "),
		)
	}
	return now, nil
}

func parseIntInRange(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is no number from %d to %d", text, least, most)
	}
	return n, nil
}

// ShardOfNamespace returns the shard of a namespace. recorded is false if the record has no shard for the namespace.
func (t Table) ShardOfNamespace(namespace string) (number int, recorded bool) {
	number, recorded = t.shardByNamespace[namespace]
	return number, recorded
}

// NamespacesOfShard returns the namespaces of a shard, sorted.
func (t Table) NamespacesOfShard(number int) (list []string) {
	for namespace, of := range t.shardByNamespace {
		if of == number {
			list = append(list, namespace)
		}
	}
	slices.Sort(list)
	return list
}

// AssignNamespaces returns the data of the record in which each of the given namespaces has a shard. A namespace keeps
// its shard, unless the number of shards was one until now. A new namespace gets the shard with the fewest namespaces,
// of several the one with the smallest number. Namespaces that are not given are removed. The number of shards never
// decreases.
func (t Table) AssignNamespaces(count int, namespaces []string) (data map[string]string) {
	count = max(count, t.Count, 1)
	wasShared := t.Count != 1 || count == 1 // a record with one shard has not distributed its namespaces
	assigned, load := map[string]int{}, make([]int, count)
	var fresh []string
	for _, namespace := range namespaces {
		number, recorded := t.shardByNamespace[namespace]
		if !recorded || number >= count || !wasShared {
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
	data = map[string]string{shardCountKey: strconv.Itoa(count)}
	for namespace, number := range assigned {
		data[namespace] = strconv.Itoa(number)
	}
	return data
}

// MovePatch returns the JSON patch of the record that moves a namespace from one shard to another. The patch fails if
// the namespace has another shard by now.
func MovePatch(namespace string, from, to int) []byte {
	return fmt.Appendf(
		nil,
		`[{"op":"test","path":"/data/%[1]s","value":"%[2]d"},{"op":"replace","path":"/data/%[1]s","value":"%[3]d"}]`,
		namespace, from, to,
	)
}
