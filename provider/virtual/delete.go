package virtual

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"millwright/provider"
)

// DeleteInstance deletes the instance with the provider ID and every instance with the machine's UID. Without a provider ID it
// first outwaits a create call that may still be in flight. It never reads the class's spec: a machine can be deleted whatever
// happened to its class.
func (p *Provider) DeleteInstance(ctx context.Context, class provider.Class, machine provider.Machine) error {
	s, err := p.open(class)
	if err != nil {
		return err
	}
	ids, err := s.toTerminate(ctx, machine)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.terminate(ctx, id, machine.Cluster); err != nil {
			return describe(err, "delete instance %s of machine %s", id, machine.Name)
		}
	}
	return nil
}

// toTerminate returns the IDs of the machine's known instance and of all others with its UID: a creation that ran twice has
// left one that is not recorded. If one is known it does not wait for others, since the caller repeats the call until there is
// none.
func (s *session) toTerminate(ctx context.Context, machine provider.Machine) ([]string, error) {
	var ids []string
	name := machine.Name
	machine.Name = "" // a name alone deletes nothing
	look := func() (ReadAnswer, error) { return s.outwait(ctx, machine, false) }
	if machine.ProviderID != "" {
		id, err := parseProviderID(machine.ProviderID)
		if err != nil {
			return nil, err
		}
		ids = []string{id}
		look = func() (ReadAnswer, error) { return s.read(ctx, machine) }
	}
	found, err := look()
	if err != nil {
		return nil, describe(err, "look for instance of machine %s", name)
	}
	for _, item := range found.Items {
		if !slices.Contains(ids, item.ID) {
			ids = append(ids, item.ID)
		}
	}
	return ids, nil
}

// terminate deletes one instance. The cloud refuses it if the instance belongs to another cluster.
func (s *session) terminate(ctx context.Context, id, cluster string) error {
	query := url.Values{"cluster": {cluster}}
	err := s.do(ctx, http.MethodDelete, PathInstances+"/"+url.PathEscape(id)+"?"+query.Encode(), nil, nil)
	if provider.CodeOf(err) == provider.NotFound {
		return nil
	}
	return err
}
