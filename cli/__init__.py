"""The command line, deploy-reward."""
