// SPDX-License-Identifier: Apache-2.0
// Users of a client also name errors, settings of the connection and buffers: one import is enough.
@_exported import HHSocket
