package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// The members of SPDX 2.3 that describe a program and its modules:
// https://github.com/spdx/spdx-spec/blob/v2.3/schemas/spdx-schema.json.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Version   string         `json:"versionInfo"`
		Location  string         `json:"downloadLocation"`
		Analyzed  bool           `json:"filesAnalyzed"`
		Concluded string         `json:"licenseConcluded"`
		Declared  string         `json:"licenseDeclared"`
		Copyright string         `json:"copyrightText"`
		File      string         `json:"packageFileName,omitempty"`
		Purpose   string         `json:"primaryPackagePurpose,omitempty"`
		Comment   string         `json:"comment,omitempty"`
		Checksums []spdxChecksum `json:"checksums,omitempty"`
		Refs      []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

var notInSPDXID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// bom writes the SPDX document of a program: the modules that the linker recorded in it, as go version -m prints
// them, and the release of Go.
func (m *maker) bom(p program, on platform, file string) error {
	binary, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	name := m.archiveName(p, on)
	sum := fmt.Sprintf("%x", sha256.Sum256(binary))
	const document, program = "SPDXRef-DOCUMENT", "SPDXRef-program"
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: document, Name: name,
		Namespace: "https://" + root + "/releases/download/" + m.version + "/" + name + ".spdx.json#" + sum,
		Creation:  spdxCreation{m.time.Format(time.RFC3339), []string{"Tool: kubewasm-release"}},
		Packages: []spdxPackage{{
			ID: program, Name: p.full(), Version: m.version, Location: "https://" + root + "/releases/tag/" + m.version,
			Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: "NOASSERTION", File: filepath.Base(file), Purpose: "APPLICATION",
			Checksums: []spdxChecksum{{"SHA256", sum}},
		}},
		Relationships: []spdxRelationship{{document, "DESCRIBES", program}},
	}
	std := &debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}
	for _, mod := range append([]*debug.Module{&info.Main, std}, info.Deps...) {
		used := mod
		if mod.Replace != nil {
			used = mod.Replace
		}
		path, version := used.Path, used.Version
		if strings.HasPrefix(path, ".") { // A directory of the repository.
			path, version = mod.Path, m.version
		}
		of := spdxPackage{
			ID: "SPDXRef-" + notInSPDXID.ReplaceAllString(path+"-"+version, "-"), Name: path, Version: cmp.Or(version, m.version),
			Location: "NOASSERTION", Concluded: "NOASSERTION", Declared: "NOASSERTION", Copyright: "NOASSERTION", Purpose: "LIBRARY",
			Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
		}
		if used.Sum != "" {
			of.Comment = "go.sum: " + used.Sum
		}
		if path == root || strings.HasPrefix(path, root+"/") {
			of.Concluded, of.Declared = "Apache-2.0", "Apache-2.0"
		}
		doc.Packages = append(doc.Packages, of)
		doc.Relationships = append(doc.Relationships, spdxRelationship{program, "CONTAINS", of.ID})
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return m.write(name+".spdx.json", append(text, '\n'))
}
