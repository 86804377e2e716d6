package incus

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/lxc/incus/v6/shared/api"

	"millwright/provider"
)

// Keys of a class's Secret.
const (
	secretKeyClientCert = "clientCert" // client certificate that the server trusts (PEM); not required for a socket
	secretKeyClientKey  = "clientKey"  // key of the client certificate (PEM)
	// secretKeyServerCert is the server's certificate (PEM). If the key is set, the driver trusts only the certificate in
	// secretKeyServerCert; otherwise a public certificate authority must have signed the server's certificate.
	secretKeyServerCert = "serverCert"
	secretKeyUserData   = "userData" // user data of the instance
)

// Spec is the providerSpec of a MachineClass.
type Spec struct {
	Endpoint string `json:"endpoint"`          // required; https://HOST:PORT, or unix:///PATH of a local socket
	Project  string `json:"project,omitempty"` // if empty, the project "default"
	Target   string `json:"target,omitempty"`  // member or @group of a cluster of servers; if empty, the server chooses

	Type  string `json:"type,omitempty"` // container (default) or virtual-machine
	Image Image  `json:"image"`          // required
	// Profiles are the profiles of the instance. Nil means the project's profile "default"; an empty list means no
	// profile.
	Profiles []string                     `json:"profiles,omitempty"`
	Config   map[string]string            `json:"config,omitempty"` // keys must not begin with "user.millwright-"
	Devices  map[string]map[string]string `json:"devices,omitempty"`
	Limits   Limits                       `json:"limits,omitzero"`
	// Network is the network of the device eth0; if empty, the network of the profiles is used.
	Network string  `json:"network,omitempty"`
	Storage Storage `json:"storage,omitzero"`
}

// Image is a reference to an image by alias or fingerprint. The image is on the Incus server itself or on an image
// server.
type Image struct {
	Alias       string `json:"alias,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Server      string `json:"server,omitempty"`   // URL of an image server; if empty, the Incus server itself
	Protocol    string `json:"protocol,omitempty"` // simplestreams, incus or oci; only with Server
}

// Limits are the resource limits of an instance. Values have the syntax of Incus.
type Limits struct {
	CPU    string `json:"cpu,omitempty"`    // value of limits.cpu, such as "2"
	Memory string `json:"memory,omitempty"` // value of limits.memory, such as "4GiB"
}

// Storage configures the root volume of an instance.
type Storage struct {
	Pool string `json:"pool,omitempty"` // storage pool; if empty, the pool of the profiles
	Size string `json:"size,omitempty"` // size of the disk device, such as "20GiB"; if empty, the default of the pool
}

// ParseSpec parses and validates a providerSpec. Errors have code InvalidArgument and contain the name of the field.
func ParseSpec(raw json.RawMessage) (Spec, error) {
	spec := Spec{Project: api.ProjectDefaultName, Type: string(api.InstanceTypeContainer)}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		var wrong *json.UnmarshalTypeError
		switch {
		case errors.As(err, &wrong):
			return Spec{}, provider.Errorf(
				provider.InvalidArgument,
				"providerSpec.%s: is %s, and must be %s",
				wrong.Field,
				wrong.Value,
				wrong.Type,
			)
		case errors.Is(err, io.EOF):
			return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec: is missing")
		}
		return Spec{}, provider.Errorf(
			provider.InvalidArgument,
			"providerSpec: %s",
			strings.TrimPrefix(err.Error(), "json: "),
		)
	}
	return spec, spec.validate()
}

func (s Spec) validate() error {
	endpoint, err := url.Parse(s.Endpoint)
	own := slices.IndexFunc(slices.Sorted(maps.Keys(s.Config)), func(key string) bool {
		return strings.HasPrefix(key, "user.millwright-") || key == configKeyProviderID || key == configKeyUserData
	})
	switch {
	case err != nil, endpoint.Scheme != "https" && endpoint.Scheme != "unix":
		return provider.Errorf(
			provider.InvalidArgument,
			"providerSpec.endpoint: %q is neither https://HOST:PORT nor unix:///PATH",
			s.Endpoint,
		)
	case s.Type != string(api.InstanceTypeContainer) && s.Type != string(api.InstanceTypeVM):
		return provider.Errorf(
			provider.InvalidArgument,
			"providerSpec.type: %q is neither container nor virtual-machine",
			s.Type,
		)
	case (s.Image.Alias == "") == (s.Image.Fingerprint == ""):
		return provider.Errorf(provider.InvalidArgument, "providerSpec.image: give an alias or a fingerprint")
	case own >= 0:
		return provider.Errorf(
			provider.InvalidArgument,
			"providerSpec.config.%s: is set by Millwright",
			slices.Sorted(maps.Keys(s.Config))[own],
		)
	case s.Storage.Size != "" && s.Storage.Pool == "":
		return provider.Errorf(provider.InvalidArgument, "providerSpec.storage.pool: is required with a size")
	}
	return nil
}

// parseEndpointAndProject returns the endpoint and the project of a spec whose other fields may be invalid.
func parseEndpointAndProject(raw json.RawMessage) Spec {
	spec := Spec{Project: api.ProjectDefaultName}
	_ = json.Unmarshal(raw, &spec) // fields of a wrong type stay empty
	if spec.Project == "" {
		spec.Project = api.ProjectDefaultName
	}
	return spec
}

// newCreateRequest returns the create request of an instance, without name and tags.
func (s Spec) newCreateRequest() api.InstancesPost {
	post := api.InstancesPost{Type: api.InstanceType(s.Type), Start: true}
	post.Source = api.InstanceSource{
		Type:        "image",
		Alias:       s.Image.Alias,
		Fingerprint: s.Image.Fingerprint,
		Server:      s.Image.Server,
		Protocol:    s.Image.Protocol,
	}
	if s.Image.Server != "" {
		post.Source.Mode = "pull"
	}
	post.Profiles, post.Config, post.Devices = s.Profiles, maps.Clone(s.Config), maps.Clone(s.Devices)
	if post.Config == nil {
		post.Config = map[string]string{}
	}
	if post.Devices == nil {
		post.Devices = map[string]map[string]string{}
	}
	for key, value := range map[string]string{"limits.cpu": s.Limits.CPU, "limits.memory": s.Limits.Memory} {
		if value != "" {
			post.Config[key] = value
		}
	}
	if s.Network != "" {
		post.Devices["eth0"] = map[string]string{"type": "nic", "name": "eth0", "network": s.Network}
	}
	if s.Storage.Pool != "" {
		post.Devices["root"] = map[string]string{"type": "disk", "path": "/", "pool": s.Storage.Pool}
		if s.Storage.Size != "" {
			post.Devices["root"]["size"] = s.Storage.Size
		}
	}
	return post
}

// isValidInstanceName reports whether Incus accepts name as the name of an instance.
func isValidInstanceName(name string) bool {
	digits := strings.Trim(name, "0123456789") == ""
	return !digits && len(name) <= 63 && regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`).MatchString(name)
}
