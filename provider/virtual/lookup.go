package virtual

import (
	"context"
	"net/url"
	"time"

	"millwright/provider"
)

// read reads once: by the machine's UID tag, and by its provider ID if no instance has the tag (a Machine that was restored
// from a backup has a new UID and its old instance). Without a provider ID, the same request also finds an instance of the class that
// has the machine's name and no UID.
func (s *session) read(ctx context.Context, machine provider.Machine) (ReadAnswer, error) {
	if machine.UID == "" && machine.ProviderID == "" {
		return ReadAnswer{}, provider.Errorf(provider.InvalidArgument, "the machine has neither a UID nor a provider ID")
	}
	if machine.UID != "" {
		if machine.Cluster == "" {
			return ReadAnswer{}, provider.Errorf(provider.InvalidArgument, "the machine's cluster has no name")
		}
		query := url.Values{"cluster": {machine.Cluster}, "uid": {machine.UID}}
		if machine.ProviderID == "" {
			query["machine"], query["class"] = []string{machine.Name}, []string{s.class}
		}
		answer, err := s.lookup(ctx, query)
		if err != nil || len(answer.Items) > 0 || machine.ProviderID == "" {
			return answer, err
		}
	}
	id, err := parseProviderID(machine.ProviderID)
	if err != nil {
		return ReadAnswer{}, err
	}
	return s.lookup(ctx, url.Values{"cluster": {machine.Cluster}, "id": {id}})
}

// readSettled is read for a machine whose instance may be too young for stale reads: the instance of LastKnownState is waited
// for until the cloud's consistency window has passed.
func (s *session) readSettled(ctx context.Context, machine provider.Machine) (ReadAnswer, error) {
	created := parseKnown(machine.LastKnownState).Created
	for {
		answer, err := s.read(ctx, machine)
		if err != nil || len(answer.Items) > 0 || created.IsZero() {
			return answer, err
		}
		limits, err := s.limits(ctx)
		if err != nil {
			return ReadAnswer{}, err
		}
		remaining := created.Add(time.Duration(limits.ConsistencyWindow)).Sub(answer.Now)
		if remaining <= 0 {
			return answer, nil
		}
		if err := s.pause(ctx, remaining); err != nil {
			return ReadAnswer{}, err
		}
	}
}

// outwait looks for instances of the machine until it finds one, or until no earlier create call can still create one. It reads
// only once if the caller knows that there was no such call (NeverTried).
//
// An earlier create call reached the cloud at most requestLife after the lookup before it, because the cloud refuses later ones
// (NotAfter), and that lookup was before now. Within the cloud's window after that, every read shows the instance. So a read
// that begins requestLife + window from now and finds nothing is correct.
//
// tokensSuffice says that a create request follows: if the cloud obeys client tokens, that request itself finds the earlier
// instance, and no wait is needed.
func (s *session) outwait(ctx context.Context, machine provider.Machine, tokensSuffice bool) (ReadAnswer, error) {
	begun := time.Now()
	answer, err := s.read(ctx, machine)
	if err != nil || len(answer.Items) > 0 || machine.NeverTried {
		return answer, err
	}
	limits, err := s.limits(ctx)
	if err != nil || (tokensSuffice && limits.ClientTokens) {
		return answer, err
	}
	until := begun.Add(s.requestLife + time.Duration(limits.ConsistencyWindow))
	for last := false; !last && err == nil && len(answer.Items) == 0; {
		if err = s.pause(ctx, time.Until(until)); err == nil {
			last = !time.Now().Before(until) // before the read, not after it: the read must begin late enough
			answer, err = s.read(ctx, machine)
		}
	}
	if err != nil {
		return ReadAnswer{}, describe(err, "wait until an earlier creation would show")
	}
	return answer, nil
}

// pause waits for the time between two lookups, or for the remaining time if that is shorter.
func (s *session) pause(ctx context.Context, remaining time.Duration) error {
	timer := time.NewTimer(min(remaining, s.lookInterval))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return transportError(ctx, ctx.Err())
	}
}
