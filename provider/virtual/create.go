package virtual

import (
	"context"
	"net/http"

	"millwright/provider"
)

// maxSends is how often one CreateInstance sends its request if the cloud refuses it as too late. A refusal proves that nothing
// was created, so sending again is safe; on a slower network the call fails.
const maxSends = 3

// CreateInstance adopts the instance with the machine's UID, or creates one. It returns Aborted while an instance with that UID
// is being terminated.
//
// One live caller per machine gets exactly one instance, whichever process died before, with client tokens and without
// (docs/adr/0005-create-exactly-once.md). Calls for one UID in this process share one request.
func (p *Provider) CreateInstance(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
	spec, err := ParseSpec(class.Spec)
	if err != nil {
		return provider.Instance{}, err
	}
	if machine.UID == "" || machine.Name == "" || machine.Cluster == "" {
		return provider.Instance{}, provider.Errorf(provider.InvalidArgument, "create instance: the machine needs a name, a UID and a cluster")
	}
	s, err := p.open(class)
	if err != nil {
		return provider.Instance{}, err
	}
	request := CreateRequest{
		Name:        machine.Name,
		Tags:        Tags{Cluster: machine.Cluster, Class: classTag(class), Machine: machine.Name, MachineUID: machine.UID},
		Spec:        spec,
		UserData:    class.Secret[SecretUserData],
		ClientToken: machine.Cluster + "/" + machine.UID,
	}
	if !p.adopt {
		return s.create(ctx, machine, request)
	}
	return p.flights.do(ctx, machine.UID, func(first bool) (provider.Instance, error) {
		machine.NeverTried = machine.NeverTried && first
		return s.adoptOrCreate(ctx, machine, request)
	})
}

func (s *session) adoptOrCreate(ctx context.Context, machine provider.Machine, request CreateRequest) (provider.Instance, error) {
	for send := 1; ; send++ {
		seen, err := s.outwait(ctx, machine, true)
		if err != nil {
			return provider.Instance{}, describe(err, "look for instance of machine %s", machine.Name)
		}
		if len(seen.Items) > 0 {
			return adopt(seen.Items, machine)
		}
		request.NotAfter = seen.Now.Add(s.requestLife)
		instance, err := s.create(ctx, machine, request)
		if !isExpired(err) || send == maxSends {
			return instance, err
		}
		// This request created nothing, and there was nothing before it: NeverTried of the caller still holds.
	}
}

// adopt returns the only instance, if it is not being terminated.
func adopt(items []Instance, machine provider.Machine) (provider.Instance, error) {
	item, err := single(items, machine)
	if err != nil {
		return provider.Instance{}, err
	}
	if item.State == StateTerminating {
		return provider.Instance{}, provider.Errorf(provider.Aborted, "instance %s of machine %s is still being terminated", item.ID, machine.Name)
	}
	return fromWire(item), nil
}

func (s *session) create(ctx context.Context, machine provider.Machine, request CreateRequest) (provider.Instance, error) {
	var made Instance
	if err := s.do(ctx, http.MethodPost, PathInstances, request, &made); err != nil {
		return provider.Instance{}, describe(err, "create instance of machine %s", machine.Name)
	}
	// The answer to a client token may be an instance that no lookup has shown yet, in any state.
	return adopt([]Instance{made}, machine)
}
