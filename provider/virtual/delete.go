package virtual

import (
	"context"
	"net/http"
	"net/url"

	"millwright/provider"
)

// DeleteInstance deletes by provider ID. Without one it deletes every instance that carries the machine's UID, after it
// has outwaited a create call that may still be under way. It never reads the class's spec: a machine can be deleted
// whatever became of its class.
func (p *Provider) DeleteInstance(ctx context.Context, class provider.Class, machine provider.Machine) error {
	s, err := p.open(class)
	if err != nil {
		return err
	}
	var ids []string
	if machine.ProviderID != "" {
		id, err := parseProviderID(machine.ProviderID)
		if err != nil {
			return err
		}
		ids = []string{id}
	} else {
		found, err := s.outwait(ctx, machine, false)
		if err != nil {
			return describe(err, "look for instance of machine %s", machine.Name)
		}
		for _, item := range found.Items {
			ids = append(ids, item.ID)
		}
	}
	for _, id := range ids {
		if err := s.terminate(ctx, id, machine.Cluster); err != nil {
			return describe(err, "delete instance %s of machine %s", id, machine.Name)
		}
	}
	return nil
}

// terminate deletes one instance. The cloud refuses it when the instance is another cluster's.
func (s *session) terminate(ctx context.Context, id, cluster string) error {
	query := url.Values{"cluster": {cluster}}
	err := s.do(ctx, http.MethodDelete, PathInstances+"/"+url.PathEscape(id)+"?"+query.Encode(), nil, nil)
	if provider.CodeOf(err) == provider.NotFound {
		return nil
	}
	return err
}
