package provider

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// maxNameLength is the maximum length of a DNS label (RFC 1123), in bytes.
const maxNameLength = 63

// ValidateName returns an error if the name of a provider is not a DNS label. Task queues, labels and metrics contain
// the name of a provider.
func ValidateName(name string) error {
	switch {
	case name == "":
		return errors.New("name of provider is empty")
	case len(name) > maxNameLength:
		return fmt.Errorf("name of provider has %d characters, at most %d are allowed", len(name), maxNameLength)
	case !regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`).MatchString(name):
		return fmt.Errorf(
			"name of provider %q must be lower case letters, digits and '-', and begin and end with a letter or digit",
			name,
		)
	}
	return nil
}

// TaskQueue returns the name of the task queue of a provider's workers, which have the credentials. Workers in other
// languages depend on the name of the task queue. TaskQueue does not validate the provider's name; ValidateName does.
func TaskQueue(name string) string { return "provider-" + name }

// Registry maps the provider names of MachineClasses to Providers. A Registry is safe for concurrent use. The zero
// Registry is empty and ready to use.
type Registry struct {
	mu        sync.RWMutex
	providers map[string]Provider
}

// Register adds a provider to the Registry. Register returns an error if the name is not a DNS label or is already
// registered.
func (r *Registry) Register(name string, p Provider) error {
	if err := ValidateName(name); err != nil {
		return fmt.Errorf("register provider: %w", err)
	}
	if p == nil {
		return fmt.Errorf("register provider %s: it is nil", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.providers[name]; taken {
		return fmt.Errorf("register provider %s: the name is taken", name)
	}
	if r.providers == nil {
		r.providers = map[string]Provider{}
	}
	r.providers[name] = p
	return nil
}

// Lookup returns the provider with a name. An empty name has no default, because a MachineClass without a provider is
// invalid. The error is an *Error with code InvalidArgument, because only a change of the MachineClass can correct it.
func (r *Registry) Lookup(name string) (Provider, error) {
	if name == "" {
		return nil, Errorf(InvalidArgument, "the machine class names no provider; this worker has: %s", r.describeNames())
	}
	r.mu.RLock()
	p, ok := r.providers[name]
	r.mu.RUnlock()
	if !ok {
		return nil, Errorf(InvalidArgument, "provider %q is not known to this worker; it has: %s", name, r.describeNames())
	}
	return p, nil
}

// Names returns the registered names, sorted.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.providers))
}

func (r *Registry) describeNames() string {
	if names := r.Names(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "none"
}
