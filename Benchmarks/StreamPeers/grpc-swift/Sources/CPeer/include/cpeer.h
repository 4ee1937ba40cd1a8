#include "../../../../peer.h"
