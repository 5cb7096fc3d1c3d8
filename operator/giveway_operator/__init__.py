"""The operator: resources and measured SLOs in, policy documents and status out."""
