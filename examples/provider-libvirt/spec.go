package libvirt

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"millwright/provider"
)

// Spec is the providerSpec of a MachineClass.
type Spec struct {
	// Type is the type of the domain: "kvm", "qemu" or "test". Type is required.
	Type string `json:"type"`

	// Definition is the content of the element <domain>: memory, vcpu, os, devices and so on. Definition is required,
	// and must not contain the elements that the driver writes: name, uuid, title, metadata.
	//
	// The driver creates no disks. For a disk with <transient shareBacking='yes'/>, libvirt creates an overlay over the
	// class's file at the start of the domain, and removes the overlay when the domain stops.
	Definition string `json:"definition"`

	// UserDataEntry is the fw_cfg entry for the user data, such as opt/com.coreos/config for Ignition. If UserDataEntry
	// is empty, the domain receives no user data. Every reader of the domain's XML can read the user data.
	UserDataEntry string `json:"userDataEntry,omitempty"`
}

// ParseSpec parses and validates a providerSpec. Errors have code InvalidArgument and contain the name of the field.
func ParseSpec(raw json.RawMessage) (Spec, error) {
	var spec Spec
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		return Spec{}, provider.Errorf(
			provider.InvalidArgument,
			"providerSpec: %s",
			strings.TrimPrefix(err.Error(), "json: "),
		)
	}
	if spec.Type == "" {
		return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec.type: is required")
	}
	if spec.Definition == "" {
		return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec.definition: is required")
	}
	return spec, checkDefinition(spec.Definition)
}

// checkDefinition returns an error if definition is not XML or contains an element that the driver writes.
func checkDefinition(definition string) error {
	decoder := xml.NewDecoder(strings.NewReader(definition))
	for depth := 0; ; {
		token, err := decoder.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return provider.Errorf(provider.InvalidArgument, "providerSpec.definition: %v", err)
		}
		switch element := token.(type) {
		case xml.StartElement:
			if depth == 0 && slices.Contains([]string{"name", "uuid", "title", "metadata"}, element.Name.Local) {
				return provider.Errorf(
					provider.InvalidArgument,
					"providerSpec.definition: <%s> is set by Millwright",
					element.Name.Local,
				)
			}
			depth++
		case xml.EndElement:
			depth--
		}
	}
}

// domainXML is the XML document of a create request.
type domainXML struct {
	XMLName    xml.Name        `xml:"domain"`
	Type       string          `xml:"type,attr"`
	Name       string          `xml:"name"`
	UUID       string          `xml:"uuid"`
	Title      string          `xml:"title"`
	Tags       machineTags     `xml:"metadata>machine"`
	UserData   *sysinfoElement `xml:"sysinfo"`
	Definition string          `xml:",innerxml"`
}

// machineTags is the element <machine> in the metadata of a domain. The driver writes the element in the XML namespace
// tagsURI, because libvirt requires a namespace. libvirt removes the namespace from its answers.
type machineTags struct {
	XMLName xml.Name
	Cluster string `xml:"cluster,attr"`
	Class   string `xml:"class,attr"` // namespace/name of the MachineClass
	Name    string `xml:"name,attr"`
	UID     string `xml:"uid,attr,omitempty"`
}

// tagsURI is the XML namespace of the element <machine>.
const tagsURI = "urn:millwright:machine"

// sysinfoElement is the element <sysinfo> of a domain, with the fw_cfg entry for the user data.
type sysinfoElement struct {
	Type  string `xml:"type,attr"`
	Entry struct {
		Name  string `xml:"name,attr"`
		Value string `xml:",chardata"`
	} `xml:"entry"`
}

func classTag(class provider.Class) string { return class.Namespace + "/" + class.Name }

// domainDefinition returns the XML of the machine's domain with the given UUID.
func domainDefinition(class provider.Class, machine provider.Machine, uuid string) (string, error) {
	spec, err := ParseSpec(class.Spec)
	if err != nil {
		return "", err
	}
	// The domain's name is also the UUID: libvirt requires names that are unique on the host, but Machine names are
	// unique only in a namespace.
	wanted := domainXML{Type: spec.Type, Name: uuid, UUID: uuid, Title: machine.Name, Definition: spec.Definition}
	wanted.Tags = machineTags{
		XMLName: xml.Name{Space: tagsURI, Local: "machine"},
		Cluster: machine.Cluster, Class: classTag(class), Name: machine.Name, UID: machine.UID,
	}
	if data, has := class.Secret[secretKeyUserData]; has && spec.UserDataEntry != "" {
		if !utf8.Valid(data) {
			return "", provider.Errorf(
				provider.InvalidArgument,
				"Secret key %s: is not UTF-8 text, and XML carries nothing else",
				secretKeyUserData,
			)
		}
		wanted.UserData = &sysinfoElement{Type: "fwcfg"}
		wanted.UserData.Entry.Name, wanted.UserData.Entry.Value = spec.UserDataEntry, string(data)
	}
	text, err := xml.Marshal(wanted)
	if err != nil {
		return "", provider.Errorf(provider.Internal, "write the domain's XML: %v", err)
	}
	return string(text), nil
}
