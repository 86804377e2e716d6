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

// ValidateName returns an error if the name of a provider is not valid. Names are DNS labels, because they are part of
// the names of task queues, of labels and of metrics.
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

// TaskQueue returns the task queue of the workers that have a provider's credentials. Providers in other languages
// depend on this name. TaskQueue does not validate the provider's name: ValidateName does.
func TaskQueue(name string) string { return "provider-" + name }

// Registry finds the Provider for the name in a MachineClass. It is safe for concurrent use; the zero value is empty
// and valid.
type Registry struct {
	mu        sync.RWMutex
	providers map[string]Provider
}

// Register adds a provider. It refuses a name that is not a DNS label or is in use.
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

// Lookup returns the provider with the name. There is no default for an empty name: a MachineClass without a provider
// cannot be used. The error is an *Error with code InvalidArgument, because only a change of the class can correct it.
func (r *Registry) Lookup(name string) (Provider, error) {
	if name == "" {
		return nil, Errorf(InvalidArgument, "the machine class names no provider; this worker has: %s", r.known())
	}
	r.mu.RLock()
	p, ok := r.providers[name]
	r.mu.RUnlock()
	if !ok {
		return nil, Errorf(InvalidArgument, "provider %q is not known to this worker; it has: %s", name, r.known())
	}
	return p, nil
}

// Names returns the registered names, sorted.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.providers))
}

func (r *Registry) known() string {
	if names := r.Names(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "none"
}
