// Package libvirt is the provider for libvirt: it creates virtual machines on one host, through the socket of the
// host's libvirtd. Package libvirt is the example of docs/tutorials/provider.md, and a separate module. The worker is
// in the folder worker.
//
// The UUID of a domain is derived from the domain's Machine, so libvirt refuses a second domain for a Machine. The tags
// of a domain are in the domain's metadata. A domain is transient: one request creates and starts the domain, and a
// stopped domain leaves nothing behind.
package libvirt

import (
	"context"

	"github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"millwright/provider"
	"millwright/provider/driver"
)

// Name is the name of the provider libvirt in a MachineClass.
const Name = "libvirt"

// Driver creates domains. Each call connects with the Secret of its class. The zero value of Driver is valid.
type Driver struct{}

var _ driver.Driver = Driver{}

// New returns a Provider for libvirt.
func New(options ...driver.Option) *driver.Provider { return driver.New(Driver{}, options...) }

// Traits implements driver.Driver. The UUID of a domain is the client token. Reads from libvirtd are never stale.
func (Driver) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return provider.Traits{Idempotency: provider.ByToken}, nil
}

// Find implements driver.Driver. Find does not read class.Spec.
func (Driver) Find(ctx context.Context, class provider.Class, machine provider.Machine) (driver.SearchResult, error) {
	s, err := openSession(ctx, class)
	if err != nil {
		return driver.SearchResult{}, err
	}
	defer s.close()
	all, err := s.listDomains(machine.Cluster)
	if err != nil {
		return driver.SearchResult{}, err
	}
	var found driver.SearchResult
	for _, i := range all {
		// If an instance has no machine UID, it is a candidate only if its class is the machine's class.
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
	request driver.CreateRequest,
) (provider.Instance, error) {
	id := uuid.NewSHA1(uuid.NameSpaceURL, []byte(request.Token))
	definition, err := domainDefinition(class, machine, id.String())
	if err != nil {
		return provider.Instance{}, err
	}
	s, err := openSession(ctx, class)
	if err != nil {
		return provider.Instance{}, err
	}
	defer s.close()
	made, err := s.DomainCreateXML(definition, 0)
	if err != nil {
		// libvirt has several codes for a UUID that is in use. An earlier request with this token has created the
		// domain.
		if _, earlier, lookupErr := s.lookupDomain(id, machine.Cluster); lookupErr == nil {
			return earlier.Instance, nil
		}
		return provider.Instance{}, s.toProviderError(err)
	}
	instance, err := s.readTaggedInstance(made)
	return instance.Instance, err
}

// Delete implements driver.Driver. The domain is gone when Delete returns.
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
	s, err := openSession(ctx, class)
	if err != nil {
		return err
	}
	defer s.close()
	d, _, err := s.lookupDomain(id, machine.Cluster)
	if err != nil {
		return err
	}
	if err := s.DomainDestroy(d); err != nil && !isLibvirtError(err, libvirt.ErrOperationInvalid) {
		// ErrOperationInvalid is no failure: the domain does not run.
		return s.toProviderError(err)
	}
	// The domain still exists only if a person has made the domain persistent.
	if err := s.DomainUndefine(d); err != nil && !isLibvirtError(err, libvirt.ErrNoDomain) {
		return s.toProviderError(err)
	}
	return nil
}

// List implements driver.Driver.
func (Driver) List(ctx context.Context, class provider.Class, cluster string) ([]provider.Instance, error) {
	s, err := openSession(ctx, class)
	if err != nil {
		return nil, err
	}
	defer s.close()
	all, err := s.listDomains(cluster)
	var listed []provider.Instance
	for _, i := range all {
		if i.class == classTag(class) {
			listed = append(listed, i.Instance)
		}
	}
	return listed, err
}
