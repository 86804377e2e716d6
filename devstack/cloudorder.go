package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"millwright/decide/phrase"
	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/virtual"
)

// cloudFlags are the flags of the command cloud as they were given.
type cloudFlags struct {
	latency, nodesLate, lifetime time.Duration
	refuse, quota, vanish        string
	operation, machine, message  string
	hang, reset                  bool
	times                        int
}

// noLimitWord is the value of --refuse and --quota that ends an earlier call's setting.
const noLimitWord = "none"

// totalQuotaKey is the key of Behaviour.Quotas for all instances of the cloud.
const totalQuotaKey = "total"

// cloudOrder is what one call of the command cloud changes. A nil pointer changes nothing.
type cloudOrder struct {
	resets    bool            // all faults end, before the other changes
	operation admin.Operation // operation of latency, hangs and refusal

	latency      *time.Duration
	nodesLate    *time.Duration
	quota        *int // negative: no quota
	hangs        *bool
	refusal      *admin.Fault
	endsRefusals bool // the earlier refusals of the operation end

	vanishingName  string // machine or instance ID; empty: none
	vanishingCount int    // number of instances; zero: none
}

// parseCloudFlags checks the flags. The function isGiven reports whether a flag is given, by its name.
func parseCloudFlags(f cloudFlags, isGiven func(flag string) bool) (cloudOrder, error) {
	order := cloudOrder{resets: f.reset, operation: admin.Operation(f.operation)}
	if err := checkFlagCombination(f, isGiven); err != nil {
		return cloudOrder{}, err
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		to    **time.Duration
	}{
		{"latency", f.latency, &order.latency}, {"nodes-late", f.nodesLate, &order.nodesLate},
	} {
		if d.value < 0 {
			return cloudOrder{}, fmt.Errorf("--%s %s is negative", d.flag, d.value)
		}
		if isGiven(d.flag) {
			*d.to = &d.value
		}
	}
	if isGiven("hang") {
		order.hangs = &f.hang
	}
	for _, parse := range []func(cloudFlags, func(string) bool) error{order.parseQuota, order.parseRefusal, order.parseVanish} {
		if err := parse(f, isGiven); err != nil {
			return cloudOrder{}, err
		}
	}
	return order, nil
}

// checkFlagCombination returns an error for a flag that needs another flag, and for a wrong operation.
func checkFlagCombination(f cloudFlags, isGiven func(string) bool) error {
	for _, flag := range []string{"times", "for", "machine", "message"} {
		if isGiven(flag) && !isGiven("refuse") {
			return fmt.Errorf("--%s needs --refuse CODE", flag)
		}
	}
	op := admin.Operation(f.operation)
	timed := []admin.Operation{admin.OperationCreate, admin.OperationDelete}
	switch {
	case !slices.Contains(admin.Operations(), op):
		return fmt.Errorf("--operation %q is none of %s", op, operationNames(admin.Operations()))
	case isGiven("operation") && !isGiven("refuse") && !isGiven("hang") && !isGiven("latency"):
		return fmt.Errorf("--operation needs --refuse, --hang or --latency")
	case isGiven("latency") && !slices.Contains(timed, op):
		return fmt.Errorf("--latency is possible for %s, not for %s", operationNames(timed), op)
	}
	return nil
}

func (o *cloudOrder) parseQuota(f cloudFlags, isGiven func(string) bool) error {
	if !isGiven("quota") {
		return nil
	}
	quota := -1
	if f.quota != noLimitWord {
		var err error
		if quota, err = strconv.Atoi(f.quota); err != nil || quota < 0 {
			return fmt.Errorf("--quota %q is neither a number of instances nor %q", f.quota, noLimitWord)
		}
	}
	o.quota = &quota
	return nil
}

func (o *cloudOrder) parseRefusal(f cloudFlags, isGiven func(string) bool) error {
	if !isGiven("refuse") {
		return nil
	}
	o.endsRefusals = true
	if f.refuse == noLimitWord {
		return nil
	}
	codes := provider.Codes()
	i := slices.IndexFunc(codes, func(c provider.Code) bool { return strings.EqualFold(c.String(), f.refuse) })
	switch {
	case i < 0:
		return fmt.Errorf("--refuse %q is no code; codes are %s, or %s", f.refuse, codeNames(), noLimitWord)
	case f.times < 0:
		return fmt.Errorf("--times %d is negative", f.times)
	case f.lifetime < 0:
		return fmt.Errorf("--for %s is negative", f.lifetime)
	}
	o.refusal = &admin.Fault{
		Operation: o.operation, Code: codes[i].String(), Machine: f.machine, MaxFailures: f.times,
		Message:  cmp.Or(f.message, "devstack cloud --refuse "+codes[i].String()),
		Lifetime: virtual.Duration(f.lifetime),
	}
	return nil
}

func (o *cloudOrder) parseVanish(f cloudFlags, isGiven func(string) bool) error {
	if !isGiven("vanish") {
		return nil
	}
	count, err := strconv.Atoi(f.vanish)
	switch {
	case err == nil && count > 0:
		o.vanishingCount = count
	case err == nil || f.vanish == "":
		return fmt.Errorf("--vanish %q is neither a machine, an instance's ID nor a number of instances above 0", f.vanish)
	default:
		o.vanishingName = f.vanish
	}
	return nil
}

func (o cloudOrder) vanishes() bool { return o.vanishingName != "" || o.vanishingCount > 0 }

func (o cloudOrder) isEmpty() bool { return !o.changesBehaviour() && !o.endsRefusals && !o.vanishes() }

func (o cloudOrder) changesBehaviour() bool {
	return o.resets || o.latency != nil || o.nodesLate != nil || o.quota != nil || o.hangs != nil
}

// changeBehaviour changes the behaviour as in the order.
func (o cloudOrder) changeBehaviour(b *admin.Behaviour) {
	if o.resets {
		*b = admin.DefaultBehaviour()
	}
	if o.latency != nil {
		if o.operation == admin.OperationDelete {
			b.ExtraLatency.Delete = virtual.Duration(*o.latency)
		} else {
			b.ExtraLatency.Create = virtual.Duration(*o.latency)
		}
	}
	if o.nodesLate != nil {
		b.ExtraLatency.Boot = virtual.Duration(*o.nodesLate)
	}
	if o.quota != nil {
		if *o.quota < 0 {
			delete(b.Quotas, totalQuotaKey)
		} else {
			b.Quotas = withEntry(b.Quotas, totalQuotaKey, *o.quota)
		}
	}
	if o.hangs != nil {
		if *o.hangs {
			b.HangPoints = withEntry(b.HangPoints, o.operation, admin.HangBeforeEffect)
		} else {
			delete(b.HangPoints, o.operation)
		}
	}
}

// withEntry returns the map with an entry; a nil map becomes a new map.
func withEntry[K comparable, V any](m map[K]V, key K, value V) map[K]V {
	if m == nil {
		m = map[K]V{}
	}
	m[key] = value
	return m
}

// victims returns the instances that vanish. By number, these are the oldest instances that no delete call has ended.
func (o cloudOrder) victims(instances []admin.Instance) ([]admin.Instance, error) {
	var found []admin.Instance
	for _, i := range instances {
		if o.vanishingName == i.ID || (o.vanishingName != "" && o.vanishingName == i.Tags.MachineName) ||
			(o.vanishingCount > len(found) && i.State != virtual.StateTerminating) {
			found = append(found, i)
		}
	}
	switch {
	case o.vanishingCount > len(found):
		return nil, fmt.Errorf("--vanish %d: the cloud has %s that could", o.vanishingCount,
			phrase.CountText(len(found), "instance"))
	case o.vanishingCount == 0 && len(found) == 0:
		return nil, fmt.Errorf("--vanish %s: no instance has this ID or this machine; `devstack cloud` lists them",
			o.vanishingName)
	case o.vanishingCount == 0 && len(found) > 1:
		return nil, fmt.Errorf("--vanish %s: %d instances have this machine; name one by its ID, such as %s",
			o.vanishingName, len(found), found[0].ID)
	}
	return found, nil
}

func codeNames() string {
	var names []string
	for _, c := range provider.Codes() {
		names = append(names, c.String())
	}
	return strings.Join(names, ", ")
}

func operationNames(operations []admin.Operation) string {
	var names []string
	for _, op := range operations {
		names = append(names, string(op))
	}
	return strings.Join(names, ", ")
}
