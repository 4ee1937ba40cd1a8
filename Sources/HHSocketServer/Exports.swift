// A server names statuses and endpoints as well, and generated code messages: one import is enough.
@_exported import HHSocket
@_exported import HHSocketHello
@_exported import HHSocketMessage
