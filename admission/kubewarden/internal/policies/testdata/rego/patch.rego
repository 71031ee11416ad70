# The decision is an AdmissionReview with a patch.
package mutation

main := {"response": {"allowed": true, "uid": input.request.uid, "patchType": "JSONPatch", "patch": base64.encode(json.marshal(patches))}} if {
	count(patches) > 0
}

else := {"response": {"allowed": true, "uid": input.request.uid}}

patches := [{"op": "add", "path": "/metadata/labels", "value": {"team": "none"}}] if not input.request.object.metadata.labels

else := []
