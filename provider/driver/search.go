package driver

import (
	"context"
	"slices"
	"time"

	"millwright/provider"
)

// matchCriteria is a bit set of the criteria by which an instance belongs to a machine.
type matchCriteria int

const (
	matchUID matchCriteria = 1 << iota
	matchProviderID
	matchName              // matches only instances without a UID
	refuseForeignInstances // not a criterion: makes findInstances return the error of provider.ForeignInstanceError
)

// findInstances calls Driver.Find once, and returns the instances that belong to the machine by one of the given
// criteria.
func (p *Provider) findInstances(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	by matchCriteria,
) (SearchResult, error) {
	if machine.UID == "" && machine.ProviderID == "" {
		return SearchResult{}, provider.Errorf(provider.InvalidArgument, "the machine has neither a UID nor a provider ID")
	}
	if machine.Cluster == "" {
		return SearchResult{}, provider.Errorf(provider.InvalidArgument, "the machine's cluster has no name")
	}
	if err := ctx.Err(); err != nil {
		return SearchResult{}, err
	}
	found, err := callWithObserver(p, "Find", func() (SearchResult, error) { return p.driver.Find(ctx, class, machine) })
	if err != nil {
		return SearchResult{}, err
	}
	for _, i := range found.Instances {
		if foreign := provider.ForeignInstanceError(
			i,
			machine,
		); foreign != nil && by&refuseForeignInstances != 0 &&
			!isTerminated(i) {
			return SearchResult{}, foreign
		}
	}
	found.Instances = matchingInstances(found.Instances, machine, by)
	return found, nil
}

// matchingInstances returns the instances that belong to the machine: all instances with the machine's UID. If no
// instance has the machine's UID, matchingInstances returns the instance with the machine's provider ID. If the
// provider ID is unknown, matchingInstances returns the instances with the machine's name and without a UID.
// matchingInstances omits Terminated instances.
func matchingInstances(instances []provider.Instance, machine provider.Machine, by matchCriteria) []provider.Instance {
	matching := func(tie matchCriteria, matches func(provider.Instance) bool) []provider.Instance {
		if by&tie == 0 {
			return nil
		}
		return slices.DeleteFunc(
			slices.Clone(instances),
			func(i provider.Instance) bool { return isTerminated(i) || !matches(i) },
		)
	}
	uid := matching(matchUID, func(i provider.Instance) bool { return machine.UID != "" && i.MachineUID == machine.UID })
	if len(uid) > 0 {
		return uid
	}
	if machine.ProviderID != "" {
		return matching(matchProviderID, func(i provider.Instance) bool { return i.ProviderID == machine.ProviderID })
	}
	return matching(matchName, func(i provider.Instance) bool {
		return machine.Name != "" && i.MachineUID == "" && i.MachineName == machine.Name
	})
}

func isTerminated(i provider.Instance) bool { return i.State == provider.Terminated }

// hasUnboundedRequests reports whether a create request of an earlier process may arrive at any time: create requests
// do not expire, and WithRequestLifetime is not used.
func (p *Provider) hasUnboundedRequests(seen SearchResult) bool {
	return seen.Now.IsZero() && p.configuredRequestLifetime <= 0
}

// requestLifetime returns the lifetime of a create request: how long after a search the request may still take effect.
func (p *Provider) requestLifetime(seen SearchResult) time.Duration {
	switch {
	case p.configuredRequestLifetime > 0:
		return p.configuredRequestLifetime
	case seen.Now.IsZero():
		return unboundedRequestLifetime
	default:
		return expiringRequestLifetime
	}
}

// searchUntilConclusive searches for the machine's instances until a search finds an instance, or until no earlier
// create call can still create an instance. If no create call was ever started for the machine (NeverTried),
// searchUntilConclusive searches only once.
//
// An earlier create call first searched, and then sent a create request. The cloud accepts a create request only during
// the request's lifetime after the preceding search, and rejects the request later (NotAfter). When the cloud's window
// after the creation has passed, every read shows the instance. Therefore no instance exists if a search that starts at
// now
// + lifetime + window finds no instance. If create requests do not expire, the lifetime is an assumption.
//
// If creating is true, the caller sends a create request next. If the cloud is idempotent, the create request returns
// the existing instance, so searchUntilConclusive does not wait. If creating is false, the caller deletes the found
// instances next, so searchUntilConclusive returns only instances that the caller may delete.
func (p *Provider) searchUntilConclusive(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	creating bool,
) (SearchResult, error) {
	by := matchUID | matchProviderID | refuseForeignInstances
	if creating {
		by |= matchName
	}
	begun := time.Now()
	seen, err := p.findInstances(ctx, class, machine, by)
	if err != nil {
		return SearchResult{}, toProviderError(ctx, class, err, "look for instance of machine %s", machine.Name)
	}
	if len(seen.Instances) > 0 || machine.NeverTried {
		return seen, nil
	}
	traits, err := p.Traits(ctx, class)
	if err != nil || creating && traits.Idempotency != provider.NotIdempotent {
		return seen, err
	}
	until := begun.Add(p.requestLifetime(seen) + traits.Window)
	switch last := machine.MayRunUntil.Add(traits.Window); {
	case creating && p.hasUnboundedRequests(seen) && last.After(until):
		return p.searchUntilOtherCallEnds(ctx, class, machine, last, by)
	case creating || !traits.Named:
		return p.searchUntilDeadline(ctx, class, machine, until, by)
	}
	seen, err = p.searchUntilDeadline(ctx, class, machine, until, by|matchName)
	if err == nil && len(seen.Instances) > 0 {
		return SearchResult{}, provider.Errorf(
			provider.Aborted,
			"instance %s has appeared, which has the name of machine %s",
			seen.Instances[0].ProviderID,
			machine.Name,
		)
	}
	return seen, err
}

// searchUntilOtherCallEnds searches for the instance of a create call that may still run in another process.
// searchUntilOtherCallEnds ends when it finds the instance, or when the other call can no longer create an instance. If
// searchUntilOtherCallEnds finds no instance, it returns Aborted, and the next CreateInstance creates the instance. The
// current attempt does not create the instance itself, because too little of its time is left.
func (p *Provider) searchUntilOtherCallEnds(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	until time.Time,
	by matchCriteria,
) (SearchResult, error) {
	seen, err := p.searchUntilDeadline(ctx, class, machine, until, by)
	if err == nil && len(seen.Instances) == 0 {
		err = provider.Errorf(
			provider.Aborted,
			"a worker that was not heard of again called the cloud for machine %s, and made no instance; the next call makes it",
			machine.Name,
		)
	}
	return seen, err
}

// searchUntilDeadline repeats the search until it finds an instance or the deadline passes. The parameter until is the
// deadline: the first search that starts at or after it is the last one. Before each search, searchUntilDeadline waits
// for the search interval.
func (p *Provider) searchUntilDeadline(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	until time.Time,
	by matchCriteria,
) (SearchResult, error) {
	for last := false; ; {
		err := p.waitForNextSearch(ctx, time.Until(until))
		var seen SearchResult
		if err == nil {
			// read the clock before the search, because the start of the search must not be before the deadline
			last = !time.Now().Before(until)
			seen, err = p.findInstances(ctx, class, machine, by)
		}
		switch {
		case err != nil:
			return SearchResult{}, toProviderError(ctx, class, err, "wait until an earlier creation would show")
		case len(seen.Instances) > 0 || last:
			return seen, nil
		}
	}
}

// searchPastStaleReads searches for a machine's instances, and allows for stale reads that hide a young instance. If
// the machine has a recorded instance that no read shows, searchPastStaleReads repeats the search until the end of the
// cloud's window. The window starts at the creation time in LastKnownState, or now if LastKnownState contains no
// creation time.
func (p *Provider) searchPastStaleReads(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (SearchResult, error) {
	const by = matchUID | matchProviderID | matchName
	begun := time.Now()
	seen, err := p.findInstances(ctx, class, machine, by)
	if err != nil || len(seen.Instances) > 0 || machine.ProviderID == "" && machine.LastKnownState == "" {
		return seen, err
	}
	traits, err := p.readTraits(ctx, class)
	if err != nil || traits.Window == 0 {
		return seen, err
	}
	until := begun.Add(traits.Window)
	if historian, can := p.driver.(CreationTimeReader); can && !seen.Now.IsZero() {
		if created := historian.CreatedAt(machine.LastKnownState); !created.IsZero() {
			until = begun.Add(created.Add(traits.Window).Sub(seen.Now))
		}
	}
	if !begun.Before(until) {
		return seen, nil
	}
	return p.searchUntilDeadline(ctx, class, machine, until, by)
}

// waitForNextSearch waits for the search interval or for the remaining time, whichever is shorter.
func (p *Provider) waitForNextSearch(ctx context.Context, remaining time.Duration) error {
	timer := time.NewTimer(min(remaining, p.searchInterval))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
