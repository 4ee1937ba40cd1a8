// An app that makes calls names errors, endpoints and features as well, and generated code messages: one import is enough.
@_exported import HHSocket
@_exported import HHSocketHello
@_exported import HHSocketMessage
