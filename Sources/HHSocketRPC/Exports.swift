// An app that makes calls names errors, endpoints and features as well, and generated code messages: one import is
// enough. HHSocket brings what its API speaks of: see its own exports.
@_exported import HHSocket
@_exported import HHSocketMessage
