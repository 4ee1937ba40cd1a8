#include "cpeer.h"
