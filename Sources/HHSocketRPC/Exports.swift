// An app that makes calls names errors and endpoints as well, and generated code messages: one import is enough.
@_exported import HHSocket
@_exported import HHSocketMessage
