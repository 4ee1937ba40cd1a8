// A screen names requests, tasks and errors as well: one import is enough.
@_exported import HHSocketRPC
