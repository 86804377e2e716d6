package driver

import (
	"context"
	"slices"
	"time"

	"millwright/provider"
)

// ties are the ways to recognise the instance of a machine, as a bit set.
type ties int

const (
	byUID ties = 1 << iota
	byID
	byName // only an instance without a UID
	toAct  // not a tie: makes find return an error for an instance with the provider ID and another machine's UID
)

// find searches once, and returns the instances that one of the ties makes the machine's.
func (p *Provider) find(ctx context.Context, class provider.Class, machine provider.Machine, by ties) (Found, error) {
	if machine.UID == "" && machine.ProviderID == "" {
		return Found{}, provider.Errorf(provider.InvalidArgument, "the machine has neither a UID nor a provider ID")
	}
	if machine.Cluster == "" {
		return Found{}, provider.Errorf(provider.InvalidArgument, "the machine's cluster has no name")
	}
	if err := ctx.Err(); err != nil {
		return Found{}, err
	}
	found, err := observed(p, "Find", func() (Found, error) { return p.driver.Find(ctx, class, machine) })
	if err != nil {
		return Found{}, err
	}
	for _, i := range found.Instances {
		if foreign := provider.Foreign(i, machine); foreign != nil && by&toAct != 0 && !isTerminated(i) {
			return Found{}, foreign
		}
	}
	found.Instances = pick(found.Instances, machine, by)
	return found, nil
}

// pick returns the instances that are the machine's: those with its UID; if none has it, the one with its provider ID;
// if the provider ID is not known, those with its name and without a UID. It leaves out Terminated instances.
func pick(instances []provider.Instance, machine provider.Machine, by ties) []provider.Instance {
	matching := func(tie ties, matches func(provider.Instance) bool) []provider.Instance {
		if by&tie == 0 {
			return nil
		}
		return slices.DeleteFunc(
			slices.Clone(instances),
			func(i provider.Instance) bool { return isTerminated(i) || !matches(i) },
		)
	}
	uid := matching(byUID, func(i provider.Instance) bool { return machine.UID != "" && i.MachineUID == machine.UID })
	if len(uid) > 0 {
		return uid
	}
	if machine.ProviderID != "" {
		return matching(byID, func(i provider.Instance) bool { return i.ProviderID == machine.ProviderID })
	}
	return matching(byName, func(i provider.Instance) bool {
		return machine.Name != "" && i.MachineUID == "" && i.MachineName == machine.Name
	})
}

func isTerminated(i provider.Instance) bool { return i.State == provider.Terminated }

// unbound reports whether it is not known how long an earlier process's create request may take effect: requests do not
// expire, and WithRequestLife has not set their life.
func (p *Provider) unbound(seen Found) bool { return seen.Now.IsZero() && p.requestLife <= 0 }

// life returns how long after a search a create request may still take effect.
func (p *Provider) life(seen Found) time.Duration {
	switch {
	case p.requestLife > 0:
		return p.requestLife
	case seen.Now.IsZero():
		return unboundLife
	default:
		return expiringLife
	}
}

// outwait searches for the machine's instances until it finds one, or until no earlier create call can still create
// one. It searches only once if the caller knows that there was no create call (NeverTried).
//
// An earlier create call made a search, which was before now, and then sent a request. The cloud accepted this request
// at most a request's life after the search, because it refuses later requests (NotAfter). After the cloud's window,
// every read shows the instance. So if a search that begins life + window from now finds nothing, there is no instance.
// If requests do not expire, their life is an assumption.
//
// creating says that a create request follows: if the cloud is idempotent, the request itself finds the earlier
// instance, and no wait is needed. Otherwise a deletion follows, and outwait returns only instances that may be
// deleted.
func (p *Provider) outwait(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	creating bool,
) (Found, error) {
	by := byUID | byID | toAct
	if creating {
		by |= byName
	}
	begun := time.Now()
	seen, err := p.find(ctx, class, machine, by)
	if err != nil {
		return Found{}, describe(ctx, class, err, "look for instance of machine %s", machine.Name)
	}
	if len(seen.Instances) > 0 || machine.NeverTried {
		return seen, nil
	}
	traits, err := p.Traits(ctx, class)
	if err != nil || creating && traits.Idempotency != provider.NotIdempotent {
		return seen, err
	}
	until := begun.Add(p.life(seen) + traits.Window)
	switch last := machine.MayRunUntil.Add(traits.Window); {
	case creating && p.unbound(seen) && last.After(until):
		return p.outwaitCall(ctx, class, machine, last, by)
	case creating || !traits.Named:
		return p.searchUntil(ctx, class, machine, until, by)
	}
	seen, err = p.searchUntil(ctx, class, machine, until, by|byName)
	if err == nil && len(seen.Instances) > 0 {
		return Found{}, provider.Errorf(
			provider.Aborted,
			"instance %s has appeared, which has the name of machine %s",
			seen.Instances[0].ProviderID,
			machine.Name,
		)
	}
	return seen, err
}

// outwaitCall searches until it finds the instance of a create call that may still run in another process, or until
// this call cannot make an instance any more. Then it returns Aborted, and the instance is made by the next call: a
// create request now would have only the rest of this attempt's time.
func (p *Provider) outwaitCall(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	until time.Time,
	by ties,
) (Found, error) {
	seen, err := p.searchUntil(ctx, class, machine, until, by)
	if err == nil && len(seen.Instances) == 0 {
		err = provider.Errorf(
			provider.Aborted,
			"a worker that was not heard of again called the cloud for machine %s, and made no instance; the next call makes it",
			machine.Name,
		)
	}
	return seen, err
}

// searchUntil searches until it finds an instance, or until a search that began at the time until or later finds none.
// It pauses before each search.
func (p *Provider) searchUntil(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	until time.Time,
	by ties,
) (Found, error) {
	for last := false; ; {
		err := p.pause(ctx, time.Until(until))
		var seen Found
		if err == nil {
			last = !time.Now().Before(until) // read the clock before the search: the time of its begin counts
			seen, err = p.find(ctx, class, machine, by)
		}
		switch {
		case err != nil:
			return Found{}, describe(ctx, class, err, "wait until an earlier creation would show")
		case len(seen.Instances) > 0 || last:
			return seen, nil
		}
	}
}

// settled searches for a machine whose instance may be so young that stale reads do not show it. If the machine has an
// instance on record that no read shows, it searches until the cloud's window has passed. The window counts from the
// creation if LastKnownState has its time, otherwise from now.
func (p *Provider) settled(ctx context.Context, class provider.Class, machine provider.Machine) (Found, error) {
	const by = byUID | byID | byName
	begun := time.Now()
	seen, err := p.find(ctx, class, machine, by)
	if err != nil || len(seen.Instances) > 0 || machine.ProviderID == "" && machine.LastKnownState == "" {
		return seen, err
	}
	traits, err := p.promises(ctx, class)
	if err != nil || traits.Window == 0 {
		return seen, err
	}
	until := begun.Add(traits.Window)
	if historian, can := p.driver.(Historian); can && !seen.Now.IsZero() {
		if created := historian.CreatedAt(machine.LastKnownState); !created.IsZero() {
			until = begun.Add(created.Add(traits.Window).Sub(seen.Now))
		}
	}
	if !begun.Before(until) {
		return seen, nil
	}
	return p.searchUntil(ctx, class, machine, until, by)
}

// pause waits for the search interval, or for the remaining time if that is shorter.
func (p *Provider) pause(ctx context.Context, remaining time.Duration) error {
	timer := time.NewTimer(min(remaining, p.searchInterval))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
