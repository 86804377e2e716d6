// Package libvirt is the provider of libvirt: it makes virtual machines at one host, through the socket of the host's
// libvirtd. It is the example of docs/tutorials/provider.md, and a module of its own; its worker is in worker/.
//
// A domain has a UUID that follows from its Machine, so that libvirt refuses a second one, and tags in its metadata. It
// is transient: one request makes and starts it, and nothing is left of it when it stops.
package libvirt

import (
	"context"

	"github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"millwright/provider"
	"millwright/provider/driver"
)

// Name is the name of this provider in a MachineClass.
const Name = "libvirt"

// Driver makes domains. Each call connects with the Secret of its class. The zero value is ready for use.
type Driver struct{}

var _ driver.Driver = Driver{}

// New returns the provider.
func New(options ...driver.Option) *driver.Provider { return driver.New(Driver{}, options...) }

// Traits implements driver.Driver: the UUID is the client token, and a daemon shows each domain at once.
func (Driver) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return provider.Traits{Idempotency: provider.ByToken}, nil
}

// Find implements driver.Driver. It reads nothing of class.Spec.
func (Driver) Find(ctx context.Context, class provider.Class, machine provider.Machine) (driver.Found, error) {
	s, err := open(ctx, class)
	if err != nil {
		return driver.Found{}, err
	}
	defer s.close()
	all, err := s.list(machine.Cluster)
	if err != nil {
		return driver.Found{}, err
	}
	var found driver.Found
	for _, i := range all {
		// An instance without a UID counts in its class only.
		if i.MachineUID != "" || i.ProviderID == machine.ProviderID || i.class == classTag(class) {
			found.Instances = append(found.Instances, i.Instance)
		}
	}
	return found, nil
}

// Create implements driver.Driver.
func (Driver) Create(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	request driver.Request,
) (provider.Instance, error) {
	id := uuid.NewSHA1(uuid.NameSpaceURL, []byte(request.Token))
	definition, err := definitionOf(class, machine, id.String())
	if err != nil {
		return provider.Instance{}, err
	}
	s, err := open(ctx, class)
	if err != nil {
		return provider.Instance{}, err
	}
	defer s.close()
	made, err := s.DomainCreateXML(definition, 0)
	if err != nil {
		// libvirt has several codes for a UUID that is in use. An earlier request with this token has made that domain.
		if _, earlier, lookupErr := s.lookup(id, machine.Cluster); lookupErr == nil {
			return earlier.Instance, nil
		}
		return provider.Instance{}, s.withCode(err)
	}
	instance, err := s.describe(made)
	return instance.Instance, err
}

// Delete implements driver.Driver: the domain is gone when it returns.
func (Driver) Delete(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	instance provider.Instance,
) error {
	id, err := parseProviderID(instance.ProviderID)
	if err != nil {
		return err
	}
	s, err := open(ctx, class)
	if err != nil {
		return err
	}
	defer s.close()
	d, _, err := s.lookup(id, machine.Cluster)
	if err != nil {
		return err
	}
	if err := s.DomainDestroy(d); err != nil && !isError(err, libvirt.ErrOperationInvalid) {
		// which says that it does not run
		return s.withCode(err)
	}
	// It is gone now, unless a person has made it persistent.
	if err := s.DomainUndefine(d); err != nil && !isError(err, libvirt.ErrNoDomain) {
		return s.withCode(err)
	}
	return nil
}

// List implements driver.Driver.
func (Driver) List(ctx context.Context, class provider.Class, cluster string) ([]provider.Instance, error) {
	s, err := open(ctx, class)
	if err != nil {
		return nil, err
	}
	defer s.close()
	all, err := s.list(cluster)
	var listed []provider.Instance
	for _, i := range all {
		if i.class == classTag(class) {
			listed = append(listed, i.Instance)
		}
	}
	return listed, err
}
